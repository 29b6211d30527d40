package guarantees

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/guarantees/testbed"
)

// InspectBehind shows that Inspect says how many more calls of its Locker wait inside the process.
func InspectBehind[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, waiting := crowded(t, e, c, testbed.PoolSize, "", txlock.WithQueue(2))
	m := f.Locks.Mutex(f.Key("crowd"))
	holder, err := m.Lock(background)
	require.NoError(t, err)
	second := f.Queue(t, 1, f.Key("crowd"))

	const patient, impatient = 5, 3
	granted, given := make(chan *txlock.Lock, patient), make(chan error, impatient)
	ctx, giveUp := context.WithCancel(background)
	for range impatient {
		go func() {
			_, err := m.Lock(ctx)
			given <- err
		}()
	}
	for range patient {
		go func() {
			if lock, err := m.Lock(background); err == nil {
				granted <- lock
			}
		}()
	}
	shows := func(n int) {
		t.Helper()
		waiting.waits(t, n)
		shown := f.Look(t, f.Key("crowd"))
		require.Len(t, shown, 1)
		require.Len(t, shown[0].Waiters, 1)
		require.Equal(t, n, shown[0].Behind)
	}
	shows(patient + impatient)
	giveUp()
	for range impatient {
		require.ErrorIs(t, testbed.Receive(t, given), context.Canceled)
	}
	shows(patient)
	require.NoError(t, holder.Unlock(background))
	holder = testbed.Receive(t, second)
	f.Waiters(t, 1)
	shows(patient - 1)
	for range patient {
		require.NoError(t, holder.Unlock(background))
		holder = testbed.Receive(t, granted)
	}
	require.NoError(t, holder.Unlock(background))
}
