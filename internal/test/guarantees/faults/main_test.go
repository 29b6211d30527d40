// Package faults kills, stops and cuts off servers and processes.
package faults

import (
	"context"
	"testing"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

var background = context.Background()

// eachOpened runs a test with the pools of the library on all engines, side by side.
var eachOpened = testbed.EachOpened

func TestMain(m *testing.M) { testbed.Main(m, servers.Newest(), servers.Postgres15) }
