package faults

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

// eachPostgres runs a test for every PostgreSQL that the tests may start, side by side.
func eachPostgres(t *testing.T, test func(*testing.T, servers.Kind)) {
	t.Parallel()
	for _, e := range testbed.Engines {
		if e.Postgres && !strings.HasPrefix(e.Origin, "given") {
			t.Run(e.Name, func(t *testing.T) {
				t.Parallel()
				test(t, e.Kind)
			})
		}
	}
}

// postgres starts a server with further settings.
func postgres(t *testing.T, kind servers.Kind, settings ...string) *testbed.Engine {
	t.Helper()
	server, err := servers.Start(background, kind, servers.Options{Settings: settings})
	require.NoError(t, err)
	return testbed.Owned(t, server)
}

// drawn locks and unlocks, and returns the token.
func drawn(t *testing.T, locks *txlock.Mutex[pgx.Tx]) int64 {
	t.Helper()
	lock, err := locks.Lock(background)
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(background))
	return lock.Token()
}

// A crash takes back what was drawn from the sequence and not yet written to the disk. On Aurora it
// does not empty the table of runs, unlogged as that is. An ordinary table stands for it here.
func TestTokensWhereRunsAreKept(t *testing.T) {
	eachPostgres(t, tokensWhereRunsAreKept)
}

func tokensWhereRunsAreKept(t *testing.T, kind servers.Kind) {
	e := postgres(t, kind, "-c", "wal_writer_delay=10s")
	f := testbed.NewSizedFixture(t, e, testbed.PgxOpened(), 2, "", txlock.WithFencing())
	require.NoError(t, f.Locks.Install(background))
	e.AsAdmin(t, "ALTER TABLE "+e.Table()+"_runs SET LOGGED")
	m := f.Locks.Mutex(f.Key("a"))
	last := drawn(t, m)
	for round := range tier.Pick(2, 4, 1000) {
		for range round % 40 { // the sequence writes 32 ahead
			token := drawn(t, m)
			require.Greater(t, token, last, "round %d", round)
			last = token
		}
		held, err := m.Lock(background)
		require.NoError(t, err)
		require.Greater(t, held.Token(), last, "round %d", round)
		last = held.Token()
		if round%2 == 0 || kind == servers.Postgres14 { // it does not tell of the crash of a process
			require.NoError(t, e.Kill())
			require.NoError(t, e.Restart(background))
		} else {
			killBackend(t, e)
		}
		testbed.Receive(t, held.Context().Done())
		require.ErrorIs(t, held.Unlock(background), txlock.ErrLost)
		eventually.True(t, "a lock", func() bool {
			lock, err := m.Lock(background)
			if err != nil {
				return false
			}
			require.Greater(t, lock.Token(), last, "round %d", round)
			last = lock.Token()
			return lock.Unlock(background) == nil
		})
		back(t, e)
	}
}

// killBackend kills a process of the server, which then ends all others, and recovers.
func killBackend(t *testing.T, e *testbed.Engine) {
	t.Helper()
	var pid int
	require.NoError(t, e.Admin.QueryRow("SELECT pg_backend_pid()").Scan(&pid))
	process, err := os.FindProcess(pid)
	require.NoError(t, err)
	require.NoError(t, process.Kill())
}

// A logical replica takes over, as at the switch of a blue/green deployment. It has the rows of its
// publisher, but neither its unlogged tables, nor how far its sequences were drawn. Nothing fails.
func TestLogicalReplica(t *testing.T) {
	eachPostgres(t, logicalReplica)
}

func logicalReplica(t *testing.T, kind servers.Kind) {
	blue, green := postgres(t, kind, "-c", "wal_level=logical"), postgres(t, kind)
	locker := func(e *testbed.Engine) *txlock.Locker[pgx.Tx] {
		driver, pool := testbed.PgxOpened().Connect(t, e.DSN, 4)
		t.Cleanup(pool.Close)
		locks := txlock.New(driver, txlock.WithFencing(), txlock.WithSlots(16))
		require.NoError(t, locks.Install(background))
		t.Cleanup(func() { require.NoError(t, locks.Close()) })
		return locks
	}
	const tables = "txlock_slots, txlock_slots_epochs, txlock_slots_leaders, txlock_slots_permits, " +
		"txlock_slots_once, txlock_slots_claims"
	former, locks := locker(blue), locker(green)
	green.AsAdmin(t, "TRUNCATE "+tables+" RESTART IDENTITY")
	blue.AsAdmin(t, "CREATE PUBLICATION locks FOR TABLE "+tables)
	green.AsAdmin(t, "CREATE SUBSCRIPTION locks CONNECTION '"+blue.DSN+"' PUBLICATION locks")
	var last int64
	for range 5 {
		blue.AsAdmin(t, "DELETE FROM txlock_slots_runs") // a crash
		last = drawn(t, former.Mutex("a"))
		require.Greater(t, leadOnce(t, former), last)
	}
	use := func(locks *txlock.Locker[pgx.Tx], name string) {
		permit, err := locks.Semaphore(name, 3).Lock(background)
		require.NoError(t, err, name)
		require.NoError(t, permit.Unlock(background))
		lead := func(context.Context, int64) error { return nil }
		require.NoError(t, locks.Election(name, "me").Lead(background, lead))
	}
	use(former, "first")
	blue.AsAdmin(t, "INSERT INTO txlock_slots_permits (id, hash, permit) OVERRIDING SYSTEM VALUE "+
		"VALUES (999, 'the last', 0)")
	count := func(e *testbed.Engine) (rows string) {
		for _, table := range strings.Split(tables, ", ") {
			var n int
			require.NoError(t, e.Admin.QueryRow("SELECT count(*) FROM "+table).Scan(&n))
			rows += fmt.Sprint(n, " ")
		}
		return rows
	}
	eventually.True(t, "the rows are on the replica", func() bool { return count(blue) == count(green) })
	green.AsAdmin(t, "DROP SUBSCRIPTION locks")
	require.NoError(t, blue.Kill())

	token := drawn(t, locks.Mutex("a"))
	require.Greater(t, testbed.RunOf(token), testbed.RunOf(last))
	require.Greater(t, leadOnce(t, locks), token)
	use(locks, "first")
	use(locks, "second")
}
