package faults

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// eachOpened runs a test with the library's own pools, on every engine.
func eachOpened(t *testing.T, onPgx func(*testing.T, *testbed.Engine, testbed.Client[pgx.Tx]),
	onSQL func(*testing.T, *testbed.Engine, testbed.Client[*sql.Tx]),
) {
	for _, e := range testbed.Engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			if e.Kind == servers.MySQL || e.Kind == servers.MariaDB {
				onSQL(t, e, testbed.MySQLOpened())
				return
			}
			onPgx(t, e, testbed.PgxOpened())
		})
	}
}

// own starts a server of the same kind for one test, with its lock table and a fixture.
// That is nil where the tests were given their servers, and start none.
func own[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], options servers.Options) (
	*testbed.Engine, *testbed.Fixture[Tx],
) {
	t.Helper()
	if strings.HasPrefix(e.Origin, "given") {
		return nil, nil
	}
	server, err := servers.Start(background, e.Kind, options)
	require.NoError(t, err)
	e = testbed.Owned(t, server)
	f := testbed.NewFixture(t, e, c)
	require.NoError(t, f.Locks.Install(background))
	return e, f
}

func TestHolderKilled(t *testing.T) {
	t.Parallel()
	eachOpened(t, holderKilled[pgx.Tx], holderKilled[*sql.Tx])
}

// A holder that dies frees the lock at once, not when its lease ends, in a Lock as well as in a Do.
func holderKilled[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key")
	insert := "INSERT INTO " + table + " VALUES (1)"
	for part, ready := range map[string]string{"hold": "holds", "work": "working"} {
		holder := e.StartPartner(t, testbed.Part{
			Plays: part, DSN: e.DSNFor(f.Label, "", nil), Key: f.Key(part), Lease: time.Minute, Statement: insert,
		})
		for holder.Next(t) != ready {
		}
		granted := f.Stranger(t, f.Key(part))
		require.NoError(t, holder.Process.Kill())
		testbed.Receive(t, granted)
	}
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
}

func TestWaiterKilled(t *testing.T) {
	t.Parallel()
	eachOpened(t, waiterKilled[pgx.Tx], waiterKilled[*sql.Tx])
}

// A waiter that dies neither lets the next one in early, nor keeps it out.
func waiterKilled[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	// with clean, the server has noticed the death before the lock is released
	for _, clean := range []bool{false, true} {
		f := testbed.NewFixture(t, e, c)
		other := testbed.NewFixture(t, e, c)
		key := f.Key("queue")
		lock, err := f.Locks.Mutex(key).Lock(background)
		require.NoError(t, err)
		waiter := e.StartPartner(t, testbed.Part{
			Plays: "hold", DSN: e.DSNFor(other.Label, "", nil), Key: key, Lease: time.Minute,
		})
		require.Equal(t, "asks", waiter.Next(t))
		other.Waiters(t, 1)
		granted := f.Stranger(t, key)
		require.NoError(t, waiter.Process.Kill())
		if clean && e.Postgres {
			other.Waiters(t, 0)
		}
		require.Error(t, waiter.Exit())
		require.Empty(t, granted, "the next one was let in early")
		f.Taken(t, key)
		require.NoError(t, lock.Unlock(background))
		testbed.Receive(t, granted)
	}
}
