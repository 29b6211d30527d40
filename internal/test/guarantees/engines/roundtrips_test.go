package engines

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/wire"
)

// trips are the round trips of a client whose connection is open and whose statements are prepared.
type trips struct {
	lock int // Lock and Unlock together
	do   int // Do without what its work sends
	once int // the first Do of a Once, without what its work sends
	look int // whether somebody waits, before a permit is taken
	in   within
	exec exec
}

// exec are the round trips of an Exec of two statements, with everything.
type exec struct {
	alone   int // Exec, and TryExec
	texts   int // without arguments
	into    int // that asks for a row
	judged  int // that affects another number of rows
	nested  int // in the work of a Do that has the lock
	further int // in one that has another
}

// within are the round trips of a lock in a transaction that has begun before. By hand a lock takes
// 1, and a savepoint with a lock and its release 2.
type within struct {
	lockTx   int // LockTx, and TryLockTx that gets the lock
	missedTx int // TryLockTx that does not
	join     int // Lock, and TryLock that gets the lock, in a session
	missed   int // TryLock that does not
	nested   int // Do of another key, without what its work sends
}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	least := trips{
		lock: 2, do: 2, once: 3, look: 1, in: within{lockTx: 1, missedTx: 1, join: 1, missed: 1, nested: 2},
		exec: exec{alone: 1, texts: 1, into: 2, judged: 2, nested: 1, further: 1},
	}
	onPgx := least // Rows are judged before COMMIT; in the work of a Do the statements go one by one
	onPgx.exec = exec{alone: 2, texts: 1, into: 2, judged: 2, nested: 4, further: 4}
	inText := onPgx // the server would read a text as a whole, so the statements go one by one
	inText.exec = exec{alone: 4, texts: 4, into: 4, judged: 4, nested: 4, further: 4}
	onSQL := inText // BEGIN and COMMIT are the client library's
	onSQL.lock, onSQL.do, onSQL.once = 3, 4, 5
	onSQL.exec = exec{alone: 6, texts: 6, into: 6, judged: 5, nested: 4, further: 4}
	onSQL.in.lockTx, onSQL.in.missedTx = 4, 4 // statement by statement
	testbed.Each(t, testbed.Engines, func(t *testing.T, e *testbed.Engine) {
		if !e.Postgres {
			// On a caller's pool each statement travels alone. A Do also asks for its session,
			// begins, sets and releases its savepoint, restores the settings, and closes its
			// handle. A Once also looks behind the lock, and writes its marker.
			// The driver prepares a statement with arguments, unless they are integers that
			// travel.
			least := least
			// LockTx first asks whether the transaction goes on.
			least.exec.into, least.exec.judged = 6, 2
			least.in.lockTx, least.in.missedTx = 2, 2
			// In the work of a Do nothing travels behind the lock.
			least.exec.nested, least.exec.further = 5, 5
			alone := least
			alone.lock, alone.do, alone.once, alone.in.nested = 3, 8, 11, 3
			// A rollback goes alone.
			alone.exec = exec{alone: 11, texts: 10, into: 12, judged: 12, nested: 5, further: 6}
			for i, want := range []trips{alone, least} {
				c := testbed.MySQLSQL[i]
				t.Run(c.Name, func(t *testing.T) {
					t.Parallel()
					countTrips(t, e, c, want)
				})
			}
			return
		}
		for i, want := range []trips{onPgx, inText, onPgx} {
			c := testbed.PostgresPgx[i]
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				countTrips(t, e, c, want)
			})
		}
		c := testbed.PostgresSQL[0]
		t.Run(c.Name, func(t *testing.T) { countTrips(t, e, c, onSQL) })
	})
}

// rounds is how often a call is made.
const rounds = 12

// least is how many round trips a call takes, whose error must match want. A busy machine makes
// some cost more: pgx pings a connection that was idle for a second, and a look at a semaphore is
// asked again where its answer is late. The first calls connect and prepare.
func least(t *testing.T, proxy *wire.Proxy, want error, call func(round int) error) int {
	t.Helper()
	fewest := 1 << 30
	for round := range rounds {
		before := proxy.Bursts()
		require.ErrorIs(t, call(round), want)
		fewest = min(fewest, proxy.Bursts()-before)
	}
	return fewest
}

func countTrips[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], want trips) {
	f, proxy := testbed.Proxied(t, e, c, 4)
	table := f.MakeTable(t, "id int primary key, n int", "(1, 0), (2, 0)")
	for name, m := range map[string]*txlock.Mutex[Tx]{
		"one key":      f.Locks.Mutex(f.Key("a")),
		"several keys": f.Locks.Mutex(f.Key("a"), f.Key("b"), f.Key("c")),
		"rows":         f.Locks.Rows(table, "id", 1, 2),
		"one row":      f.Locks.Rows(table, "id", 1),
		"permit":       f.Locks.Semaphore(f.Key("a"), 2),
	} {
		more := 0
		if name == "permit" {
			more = want.look
		}
		locked := least(t, proxy, nil, func(int) error { return testbed.Cycle(background, m) })
		require.Equal(t, want.lock+more, locked, "Lock and Unlock of %s", name)
		tried := least(t, proxy, nil, func(int) error {
			lock := testbed.TryLock(t, m)
			return lock.Unlock(background)
		})
		require.Equal(t, want.lock+more, tried, "TryLock and Unlock of %s", name)
		done := least(t, proxy, nil, func(int) error {
			return m.Do(background, func(ctx context.Context, tx Tx) error {
				return f.Exec(ctx, tx, "UPDATE "+table+" SET n = n + 1 WHERE id = 1")
			})
		})
		require.Equal(t, want.do+1+more, done, "Do with one statement of %s", name)
	}
	ping := least(t, proxy, nil, func(int) error { return f.Locks.Ping(background) })
	require.Equal(t, want.look, ping, "Ping")
	countLeader(t, f, proxy, want.look)
	require.Equal(t, want.in, countWithin(t, f, proxy))
	require.Equal(t, want.exec, countExec(t, f, proxy, table))
	countOnce(t, e, c, proxy, want)
}

func countExec[Tx any](t *testing.T, f *testbed.Fixture[Tx], proxy *wire.Proxy, table string) (counted exec) {
	one := "?"
	if f.Postgres {
		one = "$1"
	}
	update := txlock.Statement{SQL: "UPDATE " + table + " SET n = n + 1 WHERE id = " + one, Args: []any{1}, Rows: 1}
	text := txlock.Statement{SQL: "-- name: Add :exec\nUPDATE " + table + " SET n = n + 1 WHERE id = 1"}
	var n int
	read := txlock.Statement{SQL: "SELECT n FROM " + table + " WHERE id = " + one, Args: []any{1}, Into: []any{&n}}
	none := update
	none.Args = []any{77}
	run := func(ctx context.Context, key string, statements ...txlock.Statement) func(int) error {
		return func(int) error { return testbed.ErrorOf(f.Locks.Mutex(f.Key(key)).Exec(ctx, statements...)) }
	}
	counted.alone = least(t, proxy, nil, run(background, "exec", update, text))
	require.Equal(t, counted.alone, least(t, proxy, nil, func(int) error {
		return testbed.ErrorOf(f.Locks.Mutex(f.Key("exec"), f.Key("and")).TryExec(background, update, text))
	}))
	counted.texts = least(t, proxy, nil, run(background, "exec", text, text))
	counted.into = least(t, proxy, nil, run(background, "exec", update, read))
	counted.judged = least(t, proxy, txlock.ErrRows, run(background, "exec", update, none))
	require.NoError(t, f.Locks.Mutex(f.Key("outer")).Do(background, func(ctx context.Context, _ Tx) error {
		counted.nested = least(t, proxy, nil, run(ctx, "outer", update, text))
		counted.further = least(t, proxy, nil, func(round int) error {
			return run(ctx, fmt.Sprint("further", round), update, text)(round)
		})
		return nil
	}))
	return counted
}

func countWithin[Tx any](t *testing.T, f *testbed.Fixture[Tx], proxy *wire.Proxy) (counted within) {
	free := func(what string, i int) *txlock.Mutex[Tx] { return f.Locks.Mutex(f.Key(fmt.Sprint(what, i))) }
	both := func(lock, try func(i int) error) int {
		count := least(t, proxy, nil, lock)
		require.Equal(t, count, least(t, proxy, nil, try))
		return count
	}
	missed := func(call func(int) error) int { return least(t, proxy, txlock.ErrNotAcquired, call) }
	other := testbed.NewSizedFixture(t, f.Engine, f.Client, 1, "")
	holder := testbed.Lock(t, other.Locks.Mutex(f.Key("taken")))
	taken := f.Locks.Mutex(f.Key("taken"))

	tx := f.Begin(t, f.DSNFor(f.Label, proxy.Addr(), nil), 0)
	counted.lockTx = both(func(i int) error { return free("tx", i).LockTx(background, tx) },
		func(i int) error { return free("try tx", i).TryLockTx(background, tx) })
	counted.missedTx = missed(func(int) error { return taken.TryLockTx(background, tx) })
	require.NoError(t, f.End(background, tx, true))
	require.NoError(t, f.Locks.Mutex(f.Key("outer")).Do(background, func(ctx context.Context, _ Tx) error {
		counted.join = both(func(i int) error { _, err := free("join", i).Lock(ctx); return err },
			func(i int) error { _, err := free("try", i).TryLock(ctx); return err })
		counted.missed = missed(func(int) error { _, err := taken.TryLock(ctx); return err })
		shared := missed(func(int) error { _, err := taken.Shared().TryLock(ctx); return err })
		if !f.Postgres { // is the server read only?
			shared--
		}
		require.Equal(t, counted.missed, shared, "of Shared")
		counted.nested = least(t, proxy, nil, func(i int) error { return free("nested", i).Do(ctx, idle[Tx]) })
		return nil
	}))
	testbed.Unlock(t, holder)
	return counted
}

// countOnce counts the round trips of a Once, whose work sends nothing: of the first time, and when
// the work was done before.
func countOnce[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], proxy *wire.Proxy, want trips) {
	f := testbed.NewSizedFixture(t, e, c, 1, proxy.Addr())
	var keys [rounds]string
	for round := range keys {
		keys[round] = f.OnceKey(fmt.Sprint("trips", round), "once:")
	}
	do := func(first bool) int {
		return least(t, proxy, nil, func(round int) error {
			ran, err := f.Locks.Once(keys[round]).Do(background, idle[Tx])
			require.Equal(t, first, ran)
			return err
		})
	}
	require.Equal(t, want.once, do(true))
	require.Equal(t, want.look, do(false))
}

// countLeader counts the round trips of Leader, while somebody leads and while nobody does.
func countLeader[Tx any](t *testing.T, f *testbed.Fixture[Tx], proxy *wire.Proxy, want int) {
	ask := func(is error) int {
		return least(t, proxy, is, func(int) error {
			return testbed.ErrorOf(f.Locks.Election(f.Key("election"), "onlooker").Leader(background))
		})
	}
	leads := testbed.NewSizedFixture(t, f.Engine, f.Client, 4, "")
	require.NoError(t, leads.Locks.Election(f.Key("election"), "me").Lead(background,
		func(context.Context, int64) error {
			require.Equal(t, want, ask(nil))
			return nil
		}))
	require.Equal(t, want, ask(txlock.ErrNoLeader))
}

// What docs/claims.md says of round trips.
func TestClaimTrips(t *testing.T) {
	t.Parallel()
	testbed.Each(t, testbed.Engines, func(t *testing.T, e *testbed.Engine) {
		if e.Postgres {
			for _, c := range testbed.PostgresPgx {
				claimTrips(t, e, c, 1, 2, 2)
			}
			claimTrips(t, e, testbed.PostgresSQL[0], 1, 4, 4)
			return
		}
		claimTrips(t, e, testbed.MySQLSQL[0], 5, 9, 10) // one statement after the other
		claimTrips(t, e, testbed.MySQLSQL[1], 1, 2, 2)
	})
}

func claimTrips[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], take, do, end int) {
	f, proxy := testbed.Proxied(t, e, c, 4)
	claim := f.Locks.Claim(f.OnceKey("a", "claim:"))
	var held *txlock.Claimed[Tx]
	for _, step := range []struct {
		what string
		want int
		is   error
		call func() error
	}{
		{"take", take, nil, func() (err error) {
			held, err = claim.TryTake(background, "me", time.Minute)
			return err
		}},
		{"miss", take, txlock.ErrNotAcquired, func() error {
			return testbed.ErrorOf(claim.TryTake(background, "other", time.Minute))
		}},
		{"do", do, nil, func() error { return held.Do(background, idle[Tx]) }},
		{"extend", end, nil, func() error { _, err := held.Extend(background, time.Minute); return err }},
		{"state", 1, nil, func() error { _, err := claim.State(background); return err }},
		{"release, and take anew", end + take, nil, func() error {
			released := held.Release(background)
			var taken error
			held, taken = claim.Take(background, "me", time.Minute)
			return errors.Join(released, taken)
		}},
	} {
		require.Equal(t, step.want, least(t, proxy, step.is, func(int) error { return step.call() }),
			"%s, %s", c.Name, step.what)
	}
}
