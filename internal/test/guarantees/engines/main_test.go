// Package engines tests what one database has and the others have not.
package engines

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
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

// eachOwnServer runs a test on a MySQL and a MariaDB of its own, with these options.
func eachOwnServer(t *testing.T, test func(*testing.T, *testbed.Engine, *servers.Server), options ...string) {
	t.Helper()
	for _, kind := range []servers.Kind{servers.MySQL, servers.MariaDB} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			server, err := servers.Start(background, kind, servers.Options{Settings: options})
			require.NoError(t, err)
			test(t, testbed.Owned(t, server), server)
		})
	}
}

// eachOwnMySQL is eachOwnServer by each client.
func eachOwnMySQL(t *testing.T, test func(*testing.T, *testbed.Engine, testbed.Client[*sql.Tx]), options ...string) {
	t.Helper()
	eachOwnServer(t, func(t *testing.T, e *testbed.Engine, _ *servers.Server) {
		for _, c := range testbed.MySQLSQL {
			t.Run(c.Name, func(t *testing.T) { test(t, e, c) })
		}
	}, options...)
}
