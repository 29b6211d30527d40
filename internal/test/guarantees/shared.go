package guarantees

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// sharing is a fixture with a lock table of its own, whose callers all wait at the server, and n
// keys that do not collide there.
func sharing[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], n int, options ...txlock.Option) (
	f *testbed.Fixture[Tx], keys []string,
) {
	t.Helper()
	const slots = 1024
	f, _ = testbed.NewFixtureWithTable(t, e, c,
		append(options, txlock.WithSlots(slots), txlock.WithQueue(testbed.PoolSize))...)
	require.NoError(t, f.Locks.Install(background))
	taken := map[uint32]bool{}
	for i := 0; len(keys) < n; i++ {
		key := fmt.Sprint("k", i)
		if slot := testbed.SlotOf(key, slots); !taken[slot] {
			taken[slot] = true
			keys = append(keys, key)
		}
	}
	return f, keys
}

// things makes a table with the rows 1 to n, that are also named so.
func things[Tx any](t *testing.T, f *testbed.Fixture[Tx], n int) (table string, ids []any) {
	t.Helper()
	table = f.MakeTable(t, "id int primary key, name varchar(9) not null unique, stock int")
	for id := range n {
		f.AsAdmin(t, fmt.Sprintf("INSERT INTO %s VALUES (%d, '%[2]d', 5)", table, id+1))
		ids = append(ids, id+1)
	}
	return table, ids
}

// SharedTogether shows that readers hold a lock together and a writer has it alone, for keys and
// rows, one and several, few and many, and for every verb.
func SharedTogether[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, keys := sharing(t, e, c, 40)
	table, ids := things(t, f, 40)
	for name, of := range map[string]struct{ all, last *txlock.Mutex[Tx] }{
		"a key":        {f.Locks.Mutex(keys[0]), f.Locks.Mutex(keys[0])},
		"several keys": {f.Locks.Mutex(keys[:3]...), f.Locks.Mutex(keys[2])},
		"many keys":    {f.Locks.Mutex(keys...), f.Locks.Mutex(keys[39])},
		"a row":        {f.Locks.Rows(table, "id", 1), f.Locks.Rows(table, "id", 1)},
		"several rows": {f.Locks.Rows(table, "id", ids[:3]...), f.Locks.Rows(table, "id", 3)},
		"many rows":    {f.Locks.Rows(table, "id", ids...), f.Locks.Rows(table, "id", 40)},
		"two indexes":  {f.Locks.Rows(table, "name", "1", "2"), f.Locks.Rows(table, "id", 2)},
	} {
		for _, pair := range []struct{ one, other *txlock.Mutex[Tx] }{{of.all, of.last}, {of.last, of.all}} {
			first, err := pair.one.Shared().Lock(background)
			require.NoError(t, err, name)
			second := testbed.TryLock(t, pair.other.Shared())
			testbed.Misses(t, pair.other)
			testbed.Misses(t, pair.one)
			testbed.Unlock(t, first)
			testbed.Misses(t, pair.one)
			testbed.Unlock(t, second)

			require.NoError(t, pair.one.Do(background, func(context.Context, Tx) error {
				testbed.Misses(t, pair.other.Shared())
				testbed.Misses(t, pair.one.Shared())
				return nil
			}), name)
			tx := f.Guest(t)
			require.NoError(t, pair.one.Shared().LockTx(background, tx), name)
			require.NoError(t, pair.other.Shared().TryDo(background, func(context.Context, Tx) error {
				testbed.Misses(t, pair.one)
				return nil
			}), name)
			writer := f.Guest(t)
			require.ErrorIs(t, pair.other.TryLockTx(background, writer), txlock.ErrNotAcquired)
			require.NoError(t, f.End(background, writer, false))
			require.NoError(t, f.End(background, tx, false))
			testbed.Unlock(t, testbed.TryLock(t, pair.one))
		}
	}
}

// SharedWork shows that what the work of a shared Do writes is committed, with those of others that
// share at the same time, and that none of them waits in the process.
func SharedWork[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewSizedFixture(t, e, c, testbed.PoolSize, "", txlock.WithQueue(1))
	table := f.MakeTable(t, "id int primary key")
	shared := f.Locks.Mutex(f.Key("k")).Shared()
	const readers = 32
	var inside sync.WaitGroup
	inside.Add(readers)
	var group errgroup.Group
	for id := range readers {
		group.Go(func() error {
			return shared.Do(background, func(ctx context.Context, tx Tx) error {
				inside.Done()
				inside.Wait() // for all of them
				return f.Exec(ctx, tx, fmt.Sprintf("INSERT INTO %s VALUES (%d)", table, id))
			})
		})
	}
	require.NoError(t, group.Wait())
	require.Equal(t, readers, f.Total(t, "SELECT COUNT(*) FROM "+table))
	require.ErrorIs(t, shared.Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (100)"))
		return errWork
	}), errWork)
	require.Equal(t, readers, f.Total(t, "SELECT COUNT(*) FROM "+table))
}

// SharedInOrder shows that readers and writers are served in the order in which they queued, those
// next to each other in the queue that share together, and that tries do not overtake. MySQL lets
// in all readers that wait for the same writer, also those behind another: there the queue has one.
func SharedInOrder[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, keys := sharing(t, e, c, 1)
	table, _ := things(t, f, 1)
	queue := "wrrwwrrrwr"
	if e.Kind == servers.MySQL {
		queue = "wrrr"
	}
	for _, m := range []*txlock.Mutex[Tx]{f.Locks.Mutex(keys[0]), f.Locks.Rows(table, "id", 1)} {
		first := testbed.Lock(t, m.Shared())
		granted := make([]<-chan *txlock.Lock, len(queue))
		for i, kind := range queue {
			waits := m
			if kind == 'r' {
				waits = m.Shared()
			}
			granted[i] = testbed.Granted(t, waits)
			f.Waiters(t, i+1)
		}
		testbed.Misses(t, m.Shared())
		testbed.Misses(t, m)
		testbed.Unlock(t, first)
		for at := 0; at < len(queue); {
			end := at + 1
			for queue[at] == 'r' && end < len(queue) && queue[end] == 'r' {
				end++
			}
			var held []*txlock.Lock
			for _, next := range granted[at:end] {
				held = append(held, testbed.Receive(t, next))
			}
			if end < len(queue) { // the others still wait, as the server says
				f.Waiters(t, len(queue)-end)
			}
			testbed.Unlock(t, held...)
			at = end
		}
		testbed.Unlock(t, testbed.TryLock(t, m))
	}
}

// Upgrade shows that a session that shares a row cannot have it alone, which it learns without a
// round trip, and that one that has it alone may share it.
func Upgrade[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, proxy := testbed.Proxied(t, e, c, 4)
	a, b := f.Key("a"), f.Key("b")
	table, _ := things(t, f, 2)
	silent := func(want error, calls ...func() error) {
		t.Helper()
		before := proxy.Bursts()
		for _, call := range calls {
			require.ErrorIs(t, call(), want)
		}
		require.Equal(t, before, proxy.Bursts(), "the server was asked")
	}
	for _, key := range []*txlock.Mutex[Tx]{f.Locks.Mutex(a), f.Locks.Rows(table, "id", 1)} {
		both := f.Locks.Mutex(a, b)
		lock := testbed.Lock(t, key.Shared())
		ctx := lock.Context()
		silent(txlock.ErrUpgrade,
			func() error { _, err := key.Lock(ctx); return err },
			func() error { _, err := key.TryLock(ctx); return err })
		again := testbed.TryLockIn(t, ctx, key.Shared())
		require.NoError(t, ctx.Err())
		testbed.Unlock(t, again, lock)

		alone := testbed.Lock(t, key)
		silent(nil, func() error { return testbed.Cycle(alone.Context(), key.Shared()) },
			func() error { return testbed.Cycle(alone.Context(), key) })
		testbed.Unlock(t, alone)

		require.NoError(t, key.Shared().Do(background, func(ctx context.Context, _ Tx) error {
			silent(txlock.ErrUpgrade,
				func() error { return key.Do(ctx, idle[Tx]) },
				func() error { _, err := key.Lock(ctx); return err },
				func() error { return key.TryDo(ctx, idle[Tx]) })
			return key.Shared().Do(ctx, idle[Tx])
		}))
		testbed.Unlock(t, testbed.TryLock(t, both))
	}
	// Of several keys, one is shared, or one is held alone.
	one, both := f.Locks.Mutex(a), f.Locks.Mutex(a, b)
	lock := testbed.TryLock(t, one.Shared())
	silent(txlock.ErrUpgrade, func() error { _, err := both.Lock(lock.Context()); return err })
	f.Free(t, b)
	testbed.Unlock(t, lock)
	lock = testbed.TryLock(t, one)
	mixed := testbed.TryLockIn(t, lock.Context(), both.Shared())
	silent(txlock.ErrUpgrade, func() error { _, err := both.Lock(lock.Context()); return err })
	testbed.Misses(t, f.Locks.Mutex(b))
	testbed.Misses(t, one.Shared())
	testbed.Unlock(t, testbed.TryLock(t, f.Locks.Mutex(b).Shared()), mixed, lock)
	f.Free(t, a, b)
}

// SharedWaitEnds shows that a shared wait ends with its context, and by Within, and leaves the
// queue.
func SharedWaitEnds[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, keys := sharing(t, e, c, 1)
	m := f.Locks.Mutex(keys[0])
	held := testbed.Lock(t, m.Shared())
	writer := testbed.LockLater(m)
	f.Waiters(t, 1)

	_, err := m.Shared().Within(50 * time.Millisecond).Lock(background)
	testbed.ErrorIs(t, err, txlock.ErrNotAcquired, context.DeadlineExceeded)
	ctx, cancel := context.WithCancel(background)
	tx := f.Guest(t)
	ended := testbed.Go(func() error { return m.Shared().LockTx(ctx, tx) })
	f.Waiters(t, 2)
	cancel()
	require.ErrorIs(t, testbed.Receive(t, ended), context.Canceled)
	f.Waiters(t, 1)
	require.NoError(t, testbed.ErrorOf(f.Query(background, tx, "SELECT 1")), "the caller's transaction stays usable")
	require.NoError(t, f.End(background, tx, false))

	testbed.Unlock(t, held)
	require.NoError(t, testbed.Receive(t, writer))
	testbed.Unlock(t, testbed.TryLock(t, m))
}

// SharedUndone shows that the rollback of a nested Do releases, on PostgreSQL, what it has shared,
// and nowhere what was shared before.
func SharedUndone[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, keys := sharing(t, e, c, 2)
	before, inside := f.Locks.Mutex(keys[0]), f.Locks.Mutex(keys[1])
	require.NoError(t, before.Shared().Do(background, func(ctx context.Context, _ Tx) error {
		require.ErrorIs(t, inside.Shared().Do(ctx, func(ctx context.Context, _ Tx) error {
			nested, err := before.Shared().Lock(ctx)
			return errors.Join(err, nested.Unlock(background), errWork)
		}), errWork)
		testbed.Misses(t, before)
		testbed.Unlock(t, testbed.TryLock(t, before.Shared()))
		return nil
	}))
	testbed.Unlock(t, testbed.TryLock(t, f.Locks.Mutex(keys...)))
}

// SharedTokens shows that shared locks have tokens above those of earlier writers, and later
// writers above theirs.
func SharedTokens[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewSizedFixture(t, e, c, 8, "", txlock.WithFencing())
	m := f.Locks.Mutex(f.Key("tokens"))
	last := int64(0)
	for _, m := range []*txlock.Mutex[Tx]{m, m.Shared(), m, m.Shared(), m.Shared(), m} {
		lock := testbed.Lock(t, m)
		require.Greater(t, lock.Token(), last)
		last = lock.Token()
		testbed.Unlock(t, lock)
	}
}
