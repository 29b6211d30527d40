package faults

import (
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

// own starts a server of the same kind for one test, with its lock table and a fixture.
// That is nil where the tests were given their servers, and start none.
func own[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], options servers.Options) (
	*testbed.Engine, *testbed.Fixture[Tx],
) {
	t.Helper()
	if e.Given() {
		return nil, nil
	}
	server := must.Get(servers.Start(background, e.Kind, options))(t)
	e = testbed.Owned(t, server)
	f := testbed.NewFixture(t, e, c)
	require.NoError(t, f.Locks.Install(background))
	return e, f
}

func TestHolderKilled(t *testing.T) {
	testbed.EachOpened(t, holderKilled[pgx.Tx], holderKilled[*sql.Tx])
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
	testbed.EachOpened(t, waiterKilled[pgx.Tx], waiterKilled[*sql.Tx])
}

// A waiter that dies neither lets the next one in early, nor keeps it out.
func waiterKilled[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	// with clean, the server has noticed the death before the lock is released
	for _, clean := range []bool{false, true} {
		f := testbed.NewFixture(t, e, c)
		other := testbed.NewFixture(t, e, c)
		key := f.Key("queue")
		lock := testbed.Lock(t, f.Locks.Mutex(key))
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
		testbed.Unlock(t, lock)
		testbed.Receive(t, granted)
	}
}

// A client that is killed inside a Do leaves the server's session to the next client of the pooler
// as it was: one that has no settings of its own can write. Odyssey sends ROLLBACK, as PgCat and
// PgDog do, and the session goes on to the next client. (PgBouncer closes such a session.)
func TestKilledBehindPooler(t *testing.T) {
	t.Parallel()
	testbed.Each(t, testbed.AllPostgres(), func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PgxOpened())
		table := f.MakeTable(t, "id int")
		pooler, err := servers.StartOdyssey(background, e.Server, "pool_size 1", "pool_reserve_prepared_statement yes")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pooler.Stop()) })
		shared := e.Through(pooler).Address()
		next := must.Get(pgx.Connect(background, e.DSNFor(f.Label, shared, nil)))(t)
		t.Cleanup(func() { require.NoError(t, next.Close(background)) })
		for range tier.Pick(1, 2, 100) {
			client := e.StartPartner(t, testbed.Part{
				Plays: "work", DSN: e.DSNFor(f.Label, shared, nil), Key: f.Key("a"), Lease: time.Minute,
				Statement: "INSERT INTO " + table + " VALUES (1)",
			})
			require.Equal(t, "working", client.Next(t))
			require.NoError(t, client.Process.Kill())
			require.Error(t, client.Exit())
			require.NoError(t, testbed.ErrorOf(next.Exec(background, "INSERT INTO "+table+" VALUES (2)")))
			f.Free(t, f.Key("a"))
		}
		require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table+" WHERE id = 1"))
	})
}
