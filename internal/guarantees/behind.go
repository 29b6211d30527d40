package guarantees

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/eventually"
	"github.com/txlock/txlock/internal/guarantees/testbed"
)

// InspectBehind shows that Inspect says how many more wait inside a process: as of the begin of a
// session, and of a holder by Lock as of its last heartbeat.
func InspectBehind[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, waiting := crowded(t, e, c, testbed.PoolSize, "", txlock.WithQueue(2), txlock.WithLease(6*time.Second))
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
	waiting.waits(t, patient+impatient)
	h := lookBehind(t, f, patient+impatient)
	require.Zero(t, h.Waiters[0].Behind, "nobody waited behind it when it began")

	inner, err := f.Locks.Mutex(f.Key("inner")).Lock(holder.Context())
	require.NoError(t, err)
	for _, joined := range f.Look(t, f.Key("inner")) {
		require.Zero(t, joined.Behind, "they wait for another key")
	}
	require.NoError(t, inner.Unlock(background))

	giveUp()
	for range impatient {
		require.ErrorIs(t, testbed.Receive(t, given), context.Canceled)
	}
	waiting.waits(t, patient)
	lookBehind(t, f, patient)

	// The next in the process goes on at the server, and says how many it has left behind. So does
	// the new holder, of the same callers.
	require.NoError(t, holder.Unlock(background))
	holder = testbed.Receive(t, second)
	f.Waiters(t, 1)
	waiting.waits(t, patient-1)
	h = lookBehind(t, f, patient-1)
	require.Equal(t, patient-1, h.Waiters[0].Behind)
	require.Equal(t, patient-1, h.Behind, "each is counted once")
	for range patient {
		require.NoError(t, holder.Unlock(background))
		holder = testbed.Receive(t, granted)
	}
	require.NoError(t, holder.Unlock(background))
}

// lookBehind waits until the holder of the crowd's key says that n callers wait behind it, where
// the server shows what an idle session says.
func lookBehind[Tx any](t *testing.T, f *testbed.Fixture[Tx], n int) (h txlock.Holding) {
	t.Helper()
	eventually.Every(t, fmt.Sprintf("%d wait behind the holder", n), 50*time.Millisecond, func() bool {
		shown := f.Look(t, f.Key("crowd"))
		require.Len(t, shown, 1)
		h = shown[0]
		return len(h.Waiters) == 1 && (!f.Tells || h.Holder != nil && h.Holder.Behind == n && h.Behind == n)
	})
	return h
}
