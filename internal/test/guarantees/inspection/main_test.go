// Package inspection tests what Inspect shows on each database, and what it must not show.
package inspection

import (
	"context"
	"errors"
	"testing"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

var background = context.Background()

var errWork = errors.New("the work failed")

func TestMain(m *testing.M) {
	testbed.Main(m, servers.Newest(), append(servers.Further(), servers.Postgres15)...)
}
