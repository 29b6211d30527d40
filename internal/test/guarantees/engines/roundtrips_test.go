package engines

import (
	"context"
	"fmt"
	"slices"
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
	for _, e := range testbed.Engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
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
}

func countTrips[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], want trips) {
	f, proxy := testbed.Proxied(t, e, c, 4)
	table := f.MakeTable(t, "id int primary key, n int")
	f.AsAdmin(t, "INSERT INTO "+table+" VALUES (1, 0), (2, 0)")
	const rounds = 20
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
		lockUnlock := func() {
			testbed.Unlock(t, testbed.Lock(t, m))
		}
		tryUnlock := func() {
			testbed.Unlock(t, testbed.TryLock(t, m))
		}
		do := func() {
			require.NoError(t, m.Do(background, func(ctx context.Context, tx Tx) error {
				return f.Exec(ctx, tx, "UPDATE "+table+" SET n = n + 1 WHERE id = 1")
			}))
		}
		count := func(what string, want int, call func()) {
			t.Helper()
			call() // connects and prepares
			call() // pgx's stdlib pings when a connection is used for the second time
			var counts [rounds]int
			for i := range counts {
				before := proxy.Bursts()
				call()
				counts[i] = proxy.Bursts() - before
			}
			// A busy machine makes some cost more: pgx pings a connection that was idle for a
			// second, and a look at a semaphore is asked again where its answer is late.
			slices.Sort(counts[:])
			require.Equal(t, want, counts[0], "%s of %s, at least", what, name)
			require.Equal(t, want, counts[rounds/2], "%s of %s, half of them", what, name)
		}
		count("Lock and Unlock", want.lock+more, lockUnlock)
		count("TryLock and Unlock", want.lock+more, tryUnlock)
		count("Do with one statement", want.do+1+more, do)
	}
	countPing(t, f, proxy, want.look)
	countLeader(t, f, proxy, want.look)
	require.Equal(t, want.in, countWithin(t, f, proxy))
	require.Equal(t, want.exec, countExec(t, f, proxy, table))
	countOnce(t, e, c, proxy, want)
}

// countExec counts the least round trips of several rounds.
func countExec[Tx any](t *testing.T, f *testbed.Fixture[Tx], proxy *wire.Proxy, table string) (counted exec) {
	least := func(want error, call func() error) int {
		least := 1 << 30
		for range 8 {
			before := proxy.Bursts()
			require.ErrorIs(t, call(), want)
			least = min(least, proxy.Bursts()-before)
		}
		return least
	}
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
	run := func(ctx context.Context, key string, statements ...txlock.Statement) func() error {
		return func() error {
			_, err := f.Locks.Mutex(f.Key(key)).Exec(ctx, statements...)
			return err
		}
	}
	counted.alone = least(nil, run(background, "exec", update, text))
	require.Equal(t, counted.alone, least(nil, func() error {
		_, err := f.Locks.Mutex(f.Key("exec"), f.Key("and")).TryExec(background, update, text)
		return err
	}))
	counted.texts = least(nil, run(background, "exec", text, text))
	counted.into = least(nil, run(background, "exec", update, read))
	counted.judged = least(txlock.ErrRows, run(background, "exec", update, none))
	require.NoError(t, f.Locks.Mutex(f.Key("outer")).Do(background, func(ctx context.Context, _ Tx) error {
		counted.nested = least(nil, run(ctx, "outer", update, text))
		counted.further = 1 << 30
		for i := range 8 {
			before := proxy.Bursts()
			require.NoError(t, run(ctx, fmt.Sprint("further", i), update, text)())
			counted.further = min(counted.further, proxy.Bursts()-before)
		}
		return nil
	}))
	return counted
}

// countWithin counts the least round trips of several rounds: pgx pings now and then.
func countWithin[Tx any](t *testing.T, f *testbed.Fixture[Tx], proxy *wire.Proxy) (counted within) {
	least := func(want error, call func(i int) error) int {
		least := 1 << 30
		for i := range 8 {
			before := proxy.Bursts()
			require.ErrorIs(t, call(i), want)
			least = min(least, proxy.Bursts()-before)
		}
		return least
	}
	free := func(what string, i int) *txlock.Mutex[Tx] { return f.Locks.Mutex(f.Key(fmt.Sprint(what, i))) }
	both := func(lock, try func(i int) error) int {
		count := least(nil, lock)
		require.Equal(t, count, least(nil, try))
		return count
	}
	other := testbed.NewSizedFixture(t, f.Engine, f.Client, 1, "")
	holder := testbed.Lock(t, other.Locks.Mutex(f.Key("taken")))
	taken := f.Locks.Mutex(f.Key("taken"))

	tx := f.Begin(t, f.DSNFor(f.Label, proxy.Addr(), nil), 0)
	counted.lockTx = both(func(i int) error { return free("tx", i).LockTx(background, tx) },
		func(i int) error { return free("try tx", i).TryLockTx(background, tx) })
	counted.missedTx = least(txlock.ErrNotAcquired, func(int) error { return taken.TryLockTx(background, tx) })
	require.NoError(t, f.End(background, tx, true))
	require.NoError(t, f.Locks.Mutex(f.Key("outer")).Do(background, func(ctx context.Context, _ Tx) error {
		counted.join = both(func(i int) error { _, err := free("join", i).Lock(ctx); return err },
			func(i int) error { _, err := free("try", i).TryLock(ctx); return err })
		counted.missed = least(txlock.ErrNotAcquired, func(int) error { _, err := taken.TryLock(ctx); return err })
		shared := least(txlock.ErrNotAcquired, func(int) error { _, err := taken.Shared().TryLock(ctx); return err })
		if !f.Postgres { // is the server read only?
			shared--
		}
		require.Equal(t, counted.missed, shared, "of Shared")
		counted.nested = least(nil, func(i int) error {
			return free("nested", i).Do(ctx, idle[Tx])
		})
		return nil
	}))
	testbed.Unlock(t, holder)
	return counted
}

// countOnce counts the round trips of a Once, whose work sends nothing: of the first time, and when
// the work was done before. The least of several rounds is what a call takes.
func countOnce[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], proxy *wire.Proxy, want trips) {
	f := testbed.NewSizedFixture(t, e, c, 1, proxy.Addr())
	do := func(o *txlock.Once[Tx], first bool) {
		ran, err := o.Do(background, idle[Tx])
		require.NoError(t, err)
		require.Equal(t, first, ran)
	}
	var firsts, further []int
	for i := range 12 {
		o := f.Locks.Once(f.OnceKey("once:", fmt.Sprint("trips", i)))
		begun, before := time.Now(), proxy.Bursts()
		do(o, true)
		first := proxy.Bursts() - before
		do(o, false)
		all := proxy.Bursts() - before
		if i < 3 || time.Since(begun) > time.Second { // it connects, prepares, and is pinged
			continue
		}
		firsts, further = append(firsts, first), append(further, all-first)
	}
	require.NotEmpty(t, firsts)
	require.Equal(t, want.once, slices.Min(firsts))
	require.Equal(t, want.look, slices.Min(further))
}

// countPing counts the round trips of Ping.
func countPing[Tx any](t *testing.T, f *testbed.Fixture[Tx], proxy *wire.Proxy, want int) {
	least := 0
	for range 5 { // connects, prepares, and is pinged
		before := proxy.Bursts()
		require.NoError(t, f.Locks.Ping(background))
		least = proxy.Bursts() - before
	}
	require.Equal(t, want, least)
}

// countLeader counts the round trips of Leader, while somebody leads and while nobody does.
func countLeader[Tx any](t *testing.T, f *testbed.Fixture[Tx], proxy *wire.Proxy, want int) {
	onlooker := f.Locks.Election(f.Key("election"), "onlooker")
	ask := func(is error) {
		t.Helper()
		for range 3 { // connects, prepares, and is pinged
			_, err := onlooker.Leader(background)
			require.ErrorIs(t, err, is)
		}
		begun, before := time.Now(), proxy.Bursts()
		_, err := onlooker.Leader(background)
		require.ErrorIs(t, err, is)
		if time.Since(begun) < time.Second {
			require.Equal(t, want, proxy.Bursts()-before)
		}
	}
	leads := testbed.NewSizedFixture(t, f.Engine, f.Client, 4, "")
	require.NoError(t, leads.Locks.Election(f.Key("election"), "me").Lead(background,
		func(context.Context, int64) error {
			ask(nil)
			return nil
		}))
	ask(txlock.ErrNoLeader)
}
