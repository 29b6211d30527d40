package guarantees

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/wire"
)

// Unlock waits for the answer to a heartbeat that is under way, and releases then.
func unlockDuringHeartbeat[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	// a stalled machine may need four seconds of it
	f, proxy := leased(t, e, c, 6*time.Second)
	lock, err := f.Locks.Mutex(f.Key("beat")).Lock(background)
	require.NoError(t, err)
	sent := proxy.Bursts()
	release := sync.OnceFunc(proxy.Hold())
	defer release()
	eventually.Every(t, "a heartbeat", time.Millisecond, func() bool { return proxy.Bursts() > sent })
	unlocked := make(chan error, 1)
	go func() { unlocked <- lock.Unlock(background) }()
	testbed.Receive(t, lock.Context().Done()) // it is in Unlock
	release()
	require.NoError(t, testbed.Receive(t, unlocked))
	f.Free(t, f.Key("beat"))
}

// The work of a nested Do may ignore its context and go on. The outer Do does not wait for it for
// ever.
func nestedDoGoesOn[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	log := &testbed.Logbook{}
	f := testbed.NewSizedFixture(t, e, c, 4, "", log.Option())
	goOn, started, nested := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	start := time.Now()
	err := f.Locks.Mutex(f.Key("outer")).Do(background, func(ctx context.Context, _ Tx) error {
		go func() {
			nested <- f.Locks.Mutex(f.Key("inner")).Do(ctx, func(context.Context, Tx) error {
				close(started)
				<-goOn
				return nil
			})
		}()
		<-started
		start = time.Now()
		return errWork
	})
	require.ErrorIs(t, err, errWork)
	require.ErrorContains(t, err, "under way")
	waitedForCalls(t, start)
	require.Contains(t, log.One(t, "WARN", "lost a lock")["error"], "under way")
	f.Transactions(t, 0)
	f.Free(t, f.Key("outer"), f.Key("inner"))
	close(goOn)
	require.Error(t, <-nested)
}

// waitedForCalls checks that a Do whose work returned at start has waited 5 seconds for the calls
// in it: not for ever, and not as long as for a COMMIT.
func waitedForCalls(t *testing.T, start time.Time) {
	t.Helper()
	took := time.Since(start)
	require.GreaterOrEqual(t, took, 4*time.Second)
	require.Less(t, took, 20*time.Second)
}

// A call that goes on in a nested Do does not keep that Do for ever either.
func nestedLockGoesOn[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewSizedFixture(t, e, c, 4, "")
	other := testbed.NewSizedFixture(t, e, c, 2, "")
	held, err := other.Locks.Mutex(f.Key("held")).Lock(background)
	require.NoError(t, err)
	failed := make(chan error, 1)
	start := time.Now()
	err = f.Locks.Mutex(f.Key("outer")).Do(background, func(ctx context.Context, _ Tx) error {
		return f.Locks.Mutex(f.Key("inner")).Do(ctx, func(ctx context.Context, _ Tx) error {
			go func() {
				_, err := f.Locks.Mutex(f.Key("held")).Lock(context.WithoutCancel(ctx))
				failed <- err
			}()
			f.Waiters(t, 1)
			start = time.Now()
			return nil
		})
	})
	require.ErrorIs(t, err, txlock.ErrLost)
	waitedForCalls(t, start)
	require.Error(t, <-failed)
	require.NoError(t, held.Unlock(background))
	f.Transactions(t, 0)
	f.Free(t, f.Key("outer"), f.Key("inner"), f.Key("held"))
}

// Close does not wait for one session after the other.
func closeIsBounded[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	proxy, err := wire.Listen(e.Address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	log := &testbed.Logbook{}
	f := testbed.NewSizedFixture(t, e, c, 8, proxy.Addr(), log.Option())
	var held [8]*txlock.Lock
	for i := range held {
		held[i], err = f.Locks.Mutex(f.Key(strconv.Itoa(i))).Lock(background)
		require.NoError(t, err)
	}
	release := proxy.Hold()
	start := time.Now()
	err = f.Locks.Close() // an error if the pool waits for the server to say goodbye
	took := time.Since(start)
	release()
	require.Less(t, took, 20*time.Second, err) // 5 for each would be 40
	for _, record := range log.Records(t) {
		require.Contains(t, record["msg"], "lost a lock")
	}
	require.Len(t, log.Records(t), 8)
	runtime.KeepAlive(&held) // else the log tells of forgotten ones, too
}
