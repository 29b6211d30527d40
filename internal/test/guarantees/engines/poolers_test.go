package engines

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// The guarantees that a pooler can break hold behind Odyssey, also in pgx's usual mode, if it
// tracks prepared statements.
func TestOdyssey(t *testing.T) {
	t.Parallel()
	const tracks = "pool_reserve_prepared_statement "
	for _, c := range []testbed.Client[pgx.Tx]{testbed.PgxOpened(), testbed.PgxOnPool("simple protocol")} {
		t.Run(c.Name, func(t *testing.T) { throughPooler(t, testbed.Odyssey(t, tracks+"yes"), c) })
	}
	t.Run("sql.DB", func(t *testing.T) {
		throughPooler(t, testbed.Odyssey(t, tracks+"yes"), testbed.PostgresSQL[0])
	})
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
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int")
	client := e.StartPartner(t, testbed.Part{
		Plays: "work", DSN: e.DSNFor(f.Label, "", nil), Key: f.Key("a"), Lease: time.Hour,
		Statement: "INSERT INTO " + table + " VALUES (1)",
	})
	require.Equal(t, "working", client.Next(t))
	require.NoError(t, client.Process.Kill())
	require.Error(t, client.Exit())
	lock, err := f.Locks.Mutex(f.Key("a")).Within(10 * time.Second).Lock(background)
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(background))
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
}

// closedInUse: a connection that work has left with a table locked says no goodbye, behind which a
// router would keep its session.
func closedInUse[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int")
	err := f.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx Tx) error {
		return f.Exec(ctx, tx, "LOCK TABLES "+table+" READ")
	})
	require.ErrorIs(t, err, txlock.ErrLost)
	ctx, cancel := context.WithTimeout(background, 10*time.Second)
	defer cancel()
	_, err = e.Admin.ExecContext(ctx, "INSERT INTO "+table+" VALUES (1)")
	require.NoError(t, err)
}
