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
)

func silentNetwork[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const lease = 10 * time.Second // a tenth of it is the margin
	f, proxy := leased(t, e, c, lease)
	lock := testbed.Lock(t, f.Locks.Mutex(f.Key("silent")))
	told := endOf(lock.Context())
	granted := f.Stranger(t, f.Key("silent"))
	release := sync.OnceFunc(proxy.Hold())
	defer release()
	silent := time.Now()
	known := testbed.Receive(t, told)
	require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrLost)
	require.ErrorContains(t, context.Cause(lock.Context()), "heartbeat")
	start := time.Now()
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	require.Less(t, time.Since(start), 20*time.Second, "Unlock is bounded in time")
	next := testbed.Receive(t, granted)
	require.Less(t, known, next, "the server has let go before the holder knew")
	require.Less(t, next.Sub(silent), lease*3/2, "the server lets go by itself")
	release()
}

// silentNetworkInWork: no heartbeat may be sent in the work of a Do, whether the work is between
// two statements or waits for an answer.
func silentNetworkInWork[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const lease = 8 * time.Second // a tenth of it is the margin
	for sends, after := range map[string]time.Duration{
		"sends nothing": -1, "sends at once": 0,
		"sends after a while": lease / 2,
	} {
		t.Run(sends, func(t *testing.T) {
			t.Parallel()
			f, proxy := leased(t, e, c, lease)
			table := f.MakeTable(t, "id int primary key")
			granted := make(<-chan time.Time)
			var silent, known time.Time
			require.ErrorIs(t, f.Locks.Mutex(f.Key("work")).Do(background, func(ctx context.Context, tx Tx) error {
				granted = f.Stranger(t, f.Key("work"))
				// After that, which may take seconds: the server's timer begins with the last
				// statement, not with the silence.
				if err := f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"); err != nil {
					return err
				}
				told := endOf(ctx)
				require.NoError(t, proxy.Silence())
				silent = time.Now()
				if after >= 0 {
					<-time.After(after)
					require.Error(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (2)"))
				}
				known = testbed.Receive(t, told)
				require.Less(t, time.Since(silent), lease*3/2, "the statement ends, too")
				require.ErrorIs(t, context.Cause(ctx), txlock.ErrLost)
				return nil
			}), txlock.ErrLost)
			next := testbed.Receive(t, granted)
			require.Less(t, known, next, "the server has let go before the work knew")
			require.Less(t, next.Sub(silent), lease*3/2, "the server lets go by itself")
			require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
		})
	}
}

// silentNetworkInNestedWait: a nested Lock waits on the session's only connection, where no
// heartbeat can be sent either.
func silentNetworkInNestedWait[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const lease = 6 * time.Second // a tenth of it is the margin
	f, proxy := leased(t, e, c, lease)
	other := testbed.NewSizedFixture(t, e, c, 2, "")
	held := testbed.Lock(t, other.Locks.Mutex(f.Key("held")))
	lock := testbed.Lock(t, f.Locks.Mutex(f.Key("silent")))
	failed := testbed.Go(func() error { _, err := f.Locks.Mutex(f.Key("held")).Lock(lock.Context()); return err })
	f.Waiters(t, 1)
	told := endOf(lock.Context())
	require.NoError(t, proxy.Silence())
	silent := time.Now()
	require.Less(t, testbed.Receive(t, told).Sub(silent), lease*3/2)
	require.ErrorIs(t, testbed.Receive(t, failed), txlock.ErrLost)
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	testbed.Unlock(t, held)
}

// Unlock waits for the answer to a heartbeat that is under way, and releases then.
func unlockDuringHeartbeat[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	// a stalled machine may need four seconds of it
	f, proxy := leased(t, e, c, 6*time.Second)
	lock := testbed.Lock(t, f.Locks.Mutex(f.Key("beat")))
	sent := proxy.Bursts()
	release := sync.OnceFunc(proxy.Hold())
	defer release()
	eventually.Every(t, "a heartbeat", time.Millisecond, func() bool { return proxy.Bursts() > sent })
	unlocked := testbed.Go(func() error { return lock.Unlock(background) })
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
	held := testbed.Lock(t, other.Locks.Mutex(f.Key("held")))
	failed := make(chan error, 1)
	start := time.Now()
	require.ErrorIs(t, f.Locks.Mutex(f.Key("outer")).Do(background, func(ctx context.Context, _ Tx) error {
		return f.Locks.Mutex(f.Key("inner")).Do(ctx, func(ctx context.Context, _ Tx) error {
			go func() { failed <- testbed.ErrorOf(f.Locks.Mutex(f.Key("held")).Lock(context.WithoutCancel(ctx))) }()
			f.Waiters(t, 1)
			start = time.Now()
			return nil
		})
	}), txlock.ErrLost)
	waitedForCalls(t, start)
	require.Error(t, <-failed)
	testbed.Unlock(t, held)
	f.Transactions(t, 0)
	f.Free(t, f.Key("outer"), f.Key("inner"), f.Key("held"))
}

// Close does not wait for one session after the other.
func closeIsBounded[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	proxy := testbed.Proxy(t, e)
	log := &testbed.Logbook{}
	f := testbed.NewSizedFixture(t, e, c, 8, proxy.Addr(), log.Option())
	var held [8]*txlock.Lock
	for i := range held {
		held[i] = testbed.Lock(t, f.Locks.Mutex(f.Key(strconv.Itoa(i))))
	}
	release := proxy.Hold()
	start := time.Now()
	err := f.Locks.Close() // an error if the pool waits for the server to say goodbye
	took := time.Since(start)
	release()
	require.Less(t, took, 20*time.Second, err) // 5 for each would be 40
	for _, record := range log.Records(t) {
		require.Contains(t, record["msg"], "lost a lock")
	}
	require.Len(t, log.Records(t), 8)
	runtime.KeepAlive(&held) // else the log tells of forgotten ones, too
}
