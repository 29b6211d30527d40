package testbed

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
)

// Own is an engine on a server of the test's own, with these settings. The test may kill it. Tests
// skip the kinds whose servers are given by address: those must not be killed.
func Own(t *testing.T, kind servers.Kind, settings ...string) *Engine {
	t.Helper()
	server := must.Get(servers.Start(background, kind, servers.Options{Settings: settings}))(t)
	return Owned(t, server)
}

// Owned is the engine of a server that ends with the test.
func Owned(t *testing.T, server *servers.Server) *Engine {
	t.Helper()
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	e := must.Get(NewEngine(server))(t)
	t.Cleanup(func() { _ = e.Admin.Close() })
	return e
}

// Given says that somebody gave the server by address: the tests must not kill it, nor start others
// of its kind.
func (e *Engine) Given() bool { return strings.HasPrefix(e.Origin, "given") }

// EachOpened runs a test with the library's own pools, on all engines side by side.
func EachOpened(t *testing.T, onPgx func(*testing.T, *Engine, Client[pgx.Tx]),
	onSQL func(*testing.T, *Engine, Client[*sql.Tx]),
) {
	t.Helper()
	t.Parallel()
	Each(t, Engines, func(t *testing.T, e *Engine) {
		if e.Postgres {
			onPgx(t, e, PgxOpened())
		} else {
			onSQL(t, e, MySQLOpened())
		}
	})
}

// Each runs a test on each of the engines, side by side.
func Each(t *testing.T, engines []*Engine, test func(*testing.T, *Engine)) {
	t.Helper()
	for _, e := range engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			test(t, e)
		})
	}
}

// EnginesWhere are the engines for which is returns true.
func EnginesWhere(is func(*Engine) bool) []*Engine {
	return slices.DeleteFunc(slices.Clone(Engines), func(e *Engine) bool { return !is(e) })
}

// AllPostgres are the engines that are PostgreSQL.
func AllPostgres() []*Engine { return EnginesWhere(func(e *Engine) bool { return e.Postgres }) }

// AllMySQL are the engines that are MySQL or MariaDB.
func AllMySQL() []*Engine { return EnginesWhere(func(e *Engine) bool { return !e.Postgres }) }
