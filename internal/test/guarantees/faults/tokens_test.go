package faults

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

// eachPostgres runs a test for every PostgreSQL that the tests may start, side by side.
func eachPostgres(t *testing.T, test func(*testing.T, servers.Kind)) {
	t.Parallel()
	ours := testbed.EnginesWhere(func(e *testbed.Engine) bool { return e.Postgres && !e.Given() })
	testbed.Each(t, ours, func(t *testing.T, e *testbed.Engine) { test(t, e.Kind) })
}

// drawn locks and unlocks, and returns the token.
func drawn(t *testing.T, locks *txlock.Mutex[pgx.Tx]) int64 {
	t.Helper()
	lock := testbed.Lock(t, locks)
	testbed.Unlock(t, lock)
	return lock.Token()
}

// A crash takes back what was drawn from the sequence and not yet written to the disk. On Aurora it
// does not empty the table of runs, unlogged as that is. An ordinary table stands for it here.
func TestTokensWhereRunsAreKept(t *testing.T) { eachPostgres(t, tokensWhereRunsAreKept) }

func tokensWhereRunsAreKept(t *testing.T, kind servers.Kind) {
	e := testbed.Own(t, kind, "-c", "wal_writer_delay=10s")
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
		held := testbed.Lock(t, m)
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
	require.NoError(t, must.Get(os.FindProcess(pid))(t).Kill())
}

// A logical replica takes over, as at the switch of a blue/green deployment. It has the rows of its
// publisher, but neither its unlogged tables, nor how far its sequences were drawn. Nothing fails.
func TestLogicalReplica(t *testing.T) { eachPostgres(t, logicalReplica) }

func logicalReplica(t *testing.T, kind servers.Kind) {
	blue, green := testbed.Own(t, kind, "-c", "wal_level=logical"), testbed.Own(t, kind)
	locker := func(e *testbed.Engine) *txlock.Locker[pgx.Tx] {
		locks := testbed.PgxOpened().Locker(t, e.DSN, 4, txlock.WithFencing(), txlock.WithSlots(16))
		require.NoError(t, locks.Install(background))
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
		testbed.Unlock(t, permit)
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

// A PostgreSQL 15 becomes an 18, by pg_upgrade, and by dump and restore, while locks are held and
// somebody leads. The holders are told. On the new server everything goes on that outlives a
// session: tokens, terms, markers, claims.
func TestMajorUpgrade(t *testing.T) {
	if !tier.Full() { // a version comes once a year
		return
	}
	t.Parallel()
	for name, move := range map[string]func(context.Context, *servers.Server, *servers.Server) error{
		"pg_upgrade": servers.Upgrade, "dump and restore": servers.Restore,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			majorUpgrade(t, move)
		})
	}
}

func majorUpgrade(t *testing.T, move func(ctx context.Context, former, later *servers.Server) error) {
	// With a setting, they are private instances in any case.
	former, later := testbed.Own(t, servers.Postgres15, "-c", "wal_level=replica"),
		testbed.Own(t, servers.Postgres18, "-c", "wal_level=replica")
	locker := func(e *testbed.Engine) *txlock.Locker[pgx.Tx] {
		return testbed.PgxOpened().Locker(t, e.DSN, 6, txlock.WithFencing())
	}
	before := locker(former)
	require.NoError(t, before.Install(background))
	nothing := func(context.Context, pgx.Tx) error { return nil }
	ran := must.Get(before.Once("done").Do(background, nothing))(t)
	require.True(t, ran)
	claim := testbed.Take(t, before.Claim("seat"), "cart", time.Hour)
	held := testbed.Lock(t, before.Mutex("held"))
	ctx, resign := context.WithCancel(background)
	terms, led := make(chan int64, 1), make(chan error, 1)
	go func() {
		led <- before.Election("failover", "before").Lead(ctx, func(ctx context.Context, term int64) error {
			terms <- term
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	term := testbed.Receive(t, terms)

	require.NoError(t, move(background, former.Server, later.Server))
	_ = former.Kill() // pg_upgrade has ended it already
	testbed.Receive(t, held.Context().Done())
	require.ErrorIs(t, held.Unlock(background), txlock.ErrLost)
	resign()
	require.Error(t, testbed.Receive(t, led))

	after := locker(later)
	require.ErrorIs(t, testbed.ErrorOf(after.Election("failover", "onlooker").Leader(background)), txlock.ErrNoLeader)
	require.Greater(t, drawn(t, after.Mutex("held")), max(held.Token(), term, claim.Token()))
	require.Greater(t, leadOnce(t, after), term)
	ran = must.Get(after.Once("done").Do(background, nothing))(t)
	require.False(t, ran, "its marker is there")
	state := testbed.StateOf(t, after.Claim("seat"))
	require.Equal(t, "cart", state.By)
	require.Equal(t, claim.Token(), state.Token)
	require.WithinDuration(t, claim.Until(), state.Until, 0)
	claimed := must.Get(after.Claimed(claim.String()))(t)
	require.NoError(t, claimed.Do(background, nothing), "its text is good on the new server")
	require.NoError(t, after.Install(background), "nothing is missing")
}
