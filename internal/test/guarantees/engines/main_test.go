// Package engines tests what one database has and the others have not.
package engines

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

var (
	background = context.Background()
	errWork    = errors.New("the work failed")
)

// idle is work that does nothing.
func idle[Tx any](context.Context, Tx) error { return nil }

func TestMain(m *testing.M) {
	testbed.Main(m, servers.Newest(), append(servers.Further(), servers.Postgres15)...)
}

// eachPostgres runs a test on every PostgreSQL, beside other tests.
func eachPostgres(t *testing.T, test func(*testing.T, *testbed.Engine)) {
	t.Helper()
	t.Parallel()
	testbed.Each(t, testbed.AllPostgres(), test)
}

// eachMySQL runs a test on every MySQL and MariaDB, beside other tests.
func eachMySQL(t *testing.T, test func(*testing.T, *testbed.Engine)) {
	t.Helper()
	t.Parallel()
	testbed.Each(t, testbed.AllMySQL(), test)
}

// clientsOf runs a test with every client of a PostgreSQL, side by side.
func clientsOf(t *testing.T, e *testbed.Engine, onPgx func(*testing.T, *testbed.Engine, testbed.Client[pgx.Tx]),
	onSQL func(*testing.T, *testbed.Engine, testbed.Client[*sql.Tx]),
) {
	t.Helper()
	for _, c := range testbed.PostgresPgx {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			onPgx(t, e, c)
		})
	}
	for _, c := range testbed.PostgresSQL {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			onSQL(t, e, c)
		})
	}
}

// bothPostgres runs a test on every PostgreSQL, with a pool of the library's own and a sql.DB.
func bothPostgres(t *testing.T, onPgx func(*testing.T, *testbed.Engine, testbed.Client[pgx.Tx]),
	onSQL func(*testing.T, *testbed.Engine, testbed.Client[*sql.Tx]),
) {
	t.Helper()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		t.Run("pgx", func(t *testing.T) { onPgx(t, e, testbed.PgxOpened()) })
		t.Run("sql.DB", func(t *testing.T) { onSQL(t, e, testbed.PostgresSQL[0]) })
	})
}

// onMySQL runs a test with some of the clients of MySQL and MariaDB, side by side.
func onMySQL(t *testing.T, clients []testbed.Client[*sql.Tx], test func(*testing.T, *testbed.Fixture[*sql.Tx])) {
	t.Helper()
	eachMySQL(t, func(t *testing.T, e *testbed.Engine) {
		for _, c := range clients {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				test(t, testbed.NewFixture(t, e, c))
			})
		}
	})
}

// eachOwnMySQL runs a test on a MySQL and a MariaDB of its own, with these settings, by each
// client.
func eachOwnMySQL(t *testing.T, test func(*testing.T, *testbed.Engine, testbed.Client[*sql.Tx]), settings ...string) {
	t.Helper()
	t.Parallel()
	for _, kind := range []servers.Kind{servers.MySQL, servers.MariaDB} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			e := testbed.Own(t, kind, settings...)
			for _, c := range testbed.MySQLSQL {
				t.Run(c.Name, func(t *testing.T) { test(t, e, c) })
			}
		})
	}
}
