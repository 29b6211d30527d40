package engines

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/tier"
)

// The guarantees that a pooler can break hold behind Odyssey, also in pgx's usual mode, if it
// tracks prepared statements.
func TestOdyssey(t *testing.T) {
	t.Parallel()
	const tracks = "pool_reserve_prepared_statement "
	for _, c := range []testbed.Client[pgx.Tx]{testbed.PgxOpened(), testbed.PgxOnPool("simple protocol")} {
		t.Run(c.Name, func(t *testing.T) { throughPooler(t, testbed.Odyssey(t, tracks+"yes"), c) })
	}
	t.Run("sql.DB", func(t *testing.T) { throughPooler(t, testbed.Odyssey(t, tracks+"yes"), testbed.PostgresSQL[0]) })
	t.Run("untracked", func(t *testing.T) {
		t.Parallel()
		untracked(t, testbed.Odyssey(t, tracks+"no"))
	})
}

// They hold behind MySQL Router too, whether it keeps sessions of the server's or not. Where it
// shares them between transactions, it refuses what mysql.Open sends.
func TestMySQLRouter(t *testing.T) {
	t.Parallel()
	sharing := []string{"connection_sharing=1", "connection_sharing_delay=0"}
	for _, c := range testbed.MySQLSQL {
		t.Run("plain "+c.Name, func(t *testing.T) { throughPooler(t, testbed.MySQLRouter(t, 0), c) })
		t.Run("idle "+c.Name, func(t *testing.T) { throughPooler(t, testbed.MySQLRouter(t, 64), c) })
	}
	t.Run("sharing", func(t *testing.T) {
		throughPooler(t, testbed.MySQLRouter(t, 64, sharing...), testbed.MySQLSQL[0])
	})
	t.Run("sharing, mysql.Open", func(t *testing.T) {
		e := testbed.MySQLRouter(t, 64, sharing...)
		driver, pool := testbed.MySQLOpened().Connect(t, e.DSN, 2)
		t.Cleanup(pool.Close)
		_, err := txlock.New(driver, txlock.WithTable(e.Table())).Mutex("a").Lock(background)
		require.ErrorContains(t, err, "Multi-Statements are forbidden if connection-sharing is enabled")
	})
}

func throughPooler[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	t.Parallel()
	show := map[string]func(*testing.T, *testbed.Engine, testbed.Client[Tx]){
		"one holder": guarantees.OneHolder[Tx], "a cancelled wait": guarantees.CancelledWait[Tx],
		"a cancel and the grant": guarantees.CancelRace[Tx], "in LockTx": guarantees.GuestCancelRace[Tx],
		"a nested wait": guarantees.NestedWaitEnds[Tx], "settings": guarantees.CallersSettings[Tx],
		"work that commits": guarantees.SelfEnded[Tx], "killed connections": guarantees.KilledConnection[Tx],
		"a context that ends": guarantees.HungUp[Tx], "work that is given up": guarantees.GivenUp[Tx],
		"a loss": guarantees.LossAnnounced[Tx], "the lease": guarantees.LeaseKept[Tx],
		"a killed client": killedClient[Tx],
	}
	if !e.Postgres {
		show["a connection that is closed"] = closedInUse[Tx]
	}
	switch c.Name {
	case testbed.MySQLOpened().Name: // the server sees another port than the client's: see docs/lease.md
		delete(show, "work that is given up")
	case testbed.MySQLSQL[0].Name:
		delete(show, "a killed client") // which is one of Open
		if !e.Postgres {                // the end of an idle connection is not seen
			delete(show, "a loss")
			delete(show, "the lease")
		}
	}
	for says, show := range show {
		t.Run(says, func(t *testing.T) { show(t, e, c) })
	}
}

// killedClient: the server has ended the session of a client that was killed in a Do.
func killedClient[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int")
	client := e.StartPartner(t, testbed.Part{
		Plays: "work", DSN: e.DSNFor(f.Label, "", nil), Key: f.Key("a"), Lease: time.Hour,
		Statement: "INSERT INTO " + table + " VALUES (1)",
	})
	require.Equal(t, "working", client.Next(t))
	require.NoError(t, client.Process.Kill())
	require.Error(t, client.Exit())
	testbed.Unlock(t, testbed.Lock(t, f.Locks.Mutex(f.Key("a")).Within(10*time.Second)))
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
}

// closedInUse: a connection that work has left with a table locked says no goodbye, behind which a
// router would keep its session.
func closedInUse[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int")
	require.ErrorIs(t, f.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx Tx) error {
		return f.Exec(ctx, tx, "LOCK TABLES "+table+" READ")
	}), txlock.ErrLost)
	ctx, cancel := context.WithTimeout(background, 10*time.Second)
	defer cancel()
	require.NoError(t, testbed.ErrorOf(e.Admin.ExecContext(ctx, "INSERT INTO "+table+" VALUES (1)")))
}

// What fails through a pooler that does not track prepared statements says so, and the simple
// protocol works through it.
func TestOldPgBouncer(t *testing.T) {
	t.Parallel()
	untracked(t, testbed.NewestPostgres().BehindPgBouncer(t, "max_prepared_statements=0"))
}

func untracked(t *testing.T, through *testbed.Engine) {
	cycle := func(f *testbed.Fixture[pgx.Tx]) error { return testbed.Cycle(background, f.Locks.Mutex(f.Key("a"))) }
	do := func(f *testbed.Fixture[pgx.Tx]) error { return f.Locks.Mutex(f.Key("a")).Do(background, idle[pgx.Tx]) }
	exec := func(f *testbed.Fixture[pgx.Tx]) error {
		return testbed.ErrorOf(f.Locks.Mutex(f.Key("a")).Exec(background, txlock.Statement{SQL: "SELECT 1", Rows: 1}))
	}
	require.NoError(t, cycle(testbed.NewFixture(t, through, testbed.PgxOnPool("simple protocol"))))
	first := testbed.NewFixture(t, through, testbed.PgxOpened())
	// Another client gets the server's session in which the first has prepared its statements.
	second := testbed.NewFixture(t, through, testbed.PgxOpened())
	for range 3 {
		for _, err := range []error{cycle(second), do(second), exec(second), cycle(first), do(first), exec(first)} {
			if err != nil {
				require.ErrorContains(t, err, "max_prepared_statements")
			}
		}
		permit, err := second.Locks.Semaphore(second.Key("permits"), 2).Lock(background)
		if err == nil {
			testbed.Unlock(t, permit)
		} else {
			require.ErrorContains(t, err, "max_prepared_statements")
		}
	}
}

// Behind a pooler that takes no cancel request, like RDS Proxy, a cancelled wait ends as elsewhere.
func TestCancelWithoutKey(t *testing.T) {
	t.Parallel()
	keyless, _ := testbed.NewestPostgres().Keyless(t, 20)
	clientsOf(t, keyless, guarantees.CancelledWait[pgx.Tx], guarantees.CancelledWait[*sql.Tx])
}

// A cancelled wait keeps its connection there, but on a machine that is too busy to send the cancel
// in time, and no cancel hits who has the server's session next.
func TestCancelsHitNoNeighbour(t *testing.T) {
	t.Parallel()
	e := testbed.NewestPostgres()
	const waiters, neighbours = 4, 4
	cancels := tier.Pick(20, 100, 10_000)
	holder := testbed.NewFixture(t, e, testbed.PgxOpened())
	key := holder.Key("held")
	held := testbed.Lock(t, holder.Locks.Mutex(key))
	keyless, pooler := e.Keyless(t, 2*waiters) // for more clients than these
	f := testbed.NewSizedFixture(t, keyless, testbed.PgxOpened(), 2*waiters, "", txlock.WithQueue(waiters))
	ctx, stop := context.WithCancel(background)
	var busy, all sync.WaitGroup
	for range neighbours {
		conn, err := pgx.Connect(background, f.DSNFor("neighbour", "", nil))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(background) })
		busy.Go(func() {
			for ctx.Err() == nil {
				if _, err := conn.Exec(background, "SELECT pg_sleep(0.001)"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	f.Warm(t, 2*waiters-1)
	logins := pooler.Logins()
	for range waiters {
		all.Go(func() {
			for range cancels / waiters {
				wait, cancel := context.WithCancel(background)
				go func() {
					<-time.After(time.Duration(rand.IntN(10_000)) * time.Microsecond)
					cancel()
				}()
				if _, err := f.Locks.Mutex(key).Lock(wait); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	stop()
	busy.Wait()
	// Where no connection comes in time to cancel from, a wait loses its own.
	require.Less(t, pooler.Logins()-logins, cancels/4, "waits have kept their connections")
	testbed.Unlock(t, held)
}
