package guarantees

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

func silentNetwork[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const lease = 10 * time.Second // a tenth of it is the margin
	f, proxy := leased(t, e, c, lease)
	lock, err := f.Locks.Mutex(f.Key("silent")).Lock(background)
	require.NoError(t, err)
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
			err := f.Locks.Mutex(f.Key("work")).Do(background, func(ctx context.Context, tx Tx) error {
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
			})
			require.ErrorIs(t, err, txlock.ErrLost)
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
	held, err := other.Locks.Mutex(f.Key("held")).Lock(background)
	require.NoError(t, err)
	lock, err := f.Locks.Mutex(f.Key("silent")).Lock(background)
	require.NoError(t, err)
	failed := make(chan error, 1)
	go func() {
		_, err := f.Locks.Mutex(f.Key("held")).Lock(lock.Context())
		failed <- err
	}()
	f.Waiters(t, 1)
	told := endOf(lock.Context())
	require.NoError(t, proxy.Silence())
	silent := time.Now()
	require.Less(t, testbed.Receive(t, told).Sub(silent), lease*3/2)
	require.ErrorIs(t, testbed.Receive(t, failed), txlock.ErrLost)
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	require.NoError(t, held.Unlock(background))
}
