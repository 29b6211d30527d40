// Package engines tests what one database has and the others have not.
package engines

import (
	"context"
	"testing"

	"github.com/txlock/txlock/internal/guarantees/testbed"
	"github.com/txlock/txlock/internal/servers"
)

var background = context.Background()

func TestMain(m *testing.M) {
	testbed.Main(m, servers.Newest(), append(servers.Further(), servers.Postgres15)...)
}

// eachPostgres runs a test on every PostgreSQL, side by side.
func eachPostgres(t *testing.T, test func(t *testing.T, e *testbed.Engine)) {
	t.Helper()
	for _, e := range testbed.Engines {
		if !e.Postgres {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			test(t, e)
		})
	}
}

// eachMySQL runs a test on every MySQL and MariaDB.
func eachMySQL(t *testing.T, test func(t *testing.T, e *testbed.Engine)) {
	t.Helper()
	for _, e := range testbed.Engines {
		if e.Postgres {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			test(t, e)
		})
	}
}
