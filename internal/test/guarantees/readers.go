package guarantees

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// InspectReaders shows that Inspect shows all that share a lock, and who waits to share, and that
// Break ends the one reader that it is given.
func InspectReaders[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, keys := sharing(t, e, c, 1)
	m := f.Locks.Mutex(keys[0])
	var readers []*txlock.Lock
	for range 3 {
		readers = append(readers, testbed.TryLock(t, m.Shared()))
	}
	look := func() txlock.Holding {
		t.Helper()
		holdings := f.Look(t, keys[0])
		require.Len(t, holdings, 1)
		return holdings[0]
	}
	h := look()
	require.Nil(t, h.Holder)
	require.Empty(t, h.Waiters)
	if e.MariaDB && h.Readers[0].ID == "" { // neighbours share other rows, and the server does not say who
		h.Holder = &h.Readers[0]
		require.ErrorContains(t, f.Locks.Break(background, h), "did not say by which session")
		testbed.Unlock(t, readers...)
		return
	}
	require.Len(t, h.Readers, 3)
	ids := map[string]bool{}
	for _, reader := range h.Readers {
		require.True(t, reader.Shared)
		ids[reader.ID] = true
		if e.Tells {
			require.Equal(t, keys[0], reader.Key)
		}
	}
	require.ErrorContains(t, f.Locks.Break(background, h), "3 sessions hold it together")
	require.Len(t, ids, 3)

	waits := []<-chan error{testbed.LockLater(m)}
	f.Waiters(t, 1)
	waits = append(waits, testbed.LockLater(m.Shared()))
	f.Waiters(t, 2)
	h = look()
	require.Len(t, h.Readers, 3)
	require.Len(t, h.Waiters, 2)
	require.False(t, h.Waiters[0].Shared)
	require.True(t, h.Waiters[1].Shared)
	if h.Readers[1].ID == "" { // as above, by now
		require.True(t, e.MariaDB)
		testbed.Unlock(t, readers...)
		for _, waited := range waits {
			require.NoError(t, testbed.Receive(t, waited))
		}
		return
	}

	broken := h.Readers[1]
	h.Holder = &broken
	require.NoError(t, f.Locks.Break(background, h))
	require.ErrorIs(t, f.Locks.Break(background, h), txlock.ErrNotHeld)
	f.Waiters(t, 2)
	h = look()
	require.Len(t, h.Readers, 2)
	lost := 0
	for _, reader := range readers {
		if err := reader.Unlock(background); err != nil {
			require.ErrorIs(t, err, txlock.ErrLost)
			lost++
		}
	}
	require.Equal(t, 1, lost)
	for _, waited := range waits {
		require.NoError(t, testbed.Receive(t, waited))
	}
}

// SharedOfHeld shows that a shared try of rows does not miss because others wait for those of them
// that the session has alone already.
func SharedOfHeld[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, keys := sharing(t, e, c, 2, txlock.WithFencing())
	table, _ := things(t, f, 2)
	for name, of := range map[string]struct{ one, both *txlock.Mutex[Tx] }{
		"keys": {f.Locks.Mutex(keys[0]), f.Locks.Mutex(keys...)},
		"rows": {f.Locks.Rows(table, "id", 1), f.Locks.Rows(table, "id", 1, 2)},
	} {
		var waits <-chan error
		// The first token numbers the server's run, which may wait: not in the Do.
		testbed.Unlock(t, testbed.Lock(t, of.one))
		require.NoError(t, of.one.Do(background, func(ctx context.Context, _ Tx) error { // which has no token
			waits = testbed.LockLater(of.one)
			f.Waiters(t, 1)
			lock, err := of.both.Shared().TryLock(ctx)
			require.NoError(t, err, name)
			require.Positive(t, lock.Token())
			require.NoError(t, of.both.Shared().TryDo(ctx, idle[Tx]), name)
			testbed.Misses(t, of.one.Shared())
			testbed.Unlock(t, lock)
			return nil
		}))
		require.NoError(t, testbed.Receive(t, waits))
	}
}
