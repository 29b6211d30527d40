// Package faults kills, stops and cuts off servers and processes.
package faults

import (
	"context"
	"testing"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

var background = context.Background()

func TestMain(m *testing.M) { testbed.Main(m, servers.Newest(), servers.Postgres15) }
