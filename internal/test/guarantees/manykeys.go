package guarantees

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// ManyKeys shows that up to 256 keys or rows are locked at once, and no others, in lock tables of
// many sizes: a server that reads all of a table would lock all of it. One more is an error, and
// nothing is sent.
func ManyKeys[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const most = 256
	for _, slots := range []int{most + 1, 1024, 4096, dialects.DefaultSlots} {
		f, _ := testbed.NewInstalled(t, e, c, txlock.WithSlots(slots))
		var held, free []string
		step := slots / most
		for slot, key := range keyOfEach(slots) {
			if slot%step == 0 && len(held) < most {
				held = append(held, key)
			} else {
				free = append(free, key)
			}
		}
		m := f.Locks.Mutex(held...)
		for _, sharing := range []bool{false, true} {
			if sharing {
				if e.IsCluster() { // which refuses it
					break
				}
				m = m.Shared()
			}
			lock := testbed.Lock(t, m)
			defer func() { _ = lock.Unlock(background) }() // a failed test drops the table
			for _, i := range []int{0, most / 2, most - 1} {
				testbed.Misses(t, f.Locks.Mutex(held[i]))
			}
			for some := range slices.Chunk(free[:min(len(free), 4096)], most) {
				testbed.Unlock(t, testbed.TryLock(t, f.Locks.Mutex(some...)))
			}
			testbed.Unlock(t, lock)
			testbed.Unlock(t, testbed.TryLock(t, m))
		}
	}

	if e.IsCluster() { // where rows have slots, and so many rows some in common
		return
	}
	f := testbed.NewFixture(t, e, c)
	table, ids := things(t, f, 2*most)
	m := f.Locks.Rows(table, "id", ids[:most]...)
	for _, m := range []*txlock.Mutex[Tx]{m, m.Shared()} {
		lock := testbed.Lock(t, m)
		testbed.Misses(t, f.Locks.Rows(table, "id", ids[most-1]))
		others := testbed.TryLock(t, f.Locks.Rows(table, "id", ids[most:]...))
		testbed.Unlock(t, others, lock)
	}
	// Several at once, which the server's lock table must hold.
	var together sync.WaitGroup
	for range 8 {
		together.Go(func() { assert.NoError(t, m.Do(background, idle[Tx])) })
	}
	together.Wait()
}

// keyOfEach finds a key for each slot of a table of so many.
func keyOfEach(slots int) []string {
	keys := make([]string, slots)
	for i, found := 0, 0; found < slots; i++ {
		key := strconv.Itoa(i)
		if slot := testbed.SlotOf(key, slots); keys[slot] == "" {
			keys[slot] = key
			found++
		}
	}
	return keys
}

// TooManyKeys shows that more than 256 keys or rows are an error, for every verb, and that nothing
// is sent.
func TooManyKeys[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, proxy := testbed.Proxied(t, e, c, 4)
	f.Free(t, f.Key("a")) // finds the lock table
	tx := f.Guest(t)
	before := proxy.Bursts()
	values := make([]any, 257)
	for i := range values {
		values[i] = i
	}
	statement := txlock.Statement{SQL: "SELECT 1"}
	for _, m := range []*txlock.Mutex[Tx]{f.Locks.Mutex(manyKeys(257)...), f.Locks.Rows("t", "id", values...)} {
		for _, m := range []*txlock.Mutex[Tx]{m, m.Shared(), m.Within(time.Minute).Retry(2)} {
			for verb, call := range map[string]func() error{
				"Lock":      func() error { _, err := m.Lock(background); return err },
				"TryLock":   func() error { _, err := m.TryLock(background); return err },
				"Do":        func() error { return m.Do(background, idle[Tx]) },
				"TryDo":     func() error { return m.TryDo(background, idle[Tx]) },
				"LockTx":    func() error { return m.LockTx(background, tx) },
				"TryLockTx": func() error { return m.TryLockTx(background, tx) },
				"Exec":      func() error { _, err := m.Exec(background, statement); return err },
			} {
				require.ErrorContains(t, call(), "257 rows at once, at most 256 are possible", verb)
			}
		}
	}
	require.Equal(t, before, proxy.Bursts(), "the server was asked")
	require.NoError(t, f.End(background, tx, false))

	// A batch is done in parts that are small enough.
	combined := txlock.Combine(func(in []string) *txlock.Mutex[Tx] { return f.Locks.Mutex(in...) },
		func(_ context.Context, _ Tx, in []string) ([]txlock.Result[int], error) {
			return make([]txlock.Result[int], len(in)), nil
		}).AtMost(300)
	var group errgroup.Group
	held := testbed.Lock(t, f.Locks.Mutex("0"))
	for _, key := range manyKeys(300) {
		group.Go(func() error { _, err := combined.Do(background, key); return err })
	}
	testbed.Unlock(t, held)
	require.NoError(t, group.Wait())
}
