package engines

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// Who waits for himself is told by the log, while he waits.
func TestOwnWaitIsLogged(t *testing.T) {
	t.Parallel()
	eachMySQL(t, func(t *testing.T, e *testbed.Engine) {
		log := &testbed.Logbook{}
		f := testbed.NewSizedFixture(t, e, testbed.MySQLOpened(), 4, "", log.Option())
		m := f.Locks.Mutex(f.Key("outer"))
		outer, err := m.Lock(background)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(background)
		ended := make(chan error, 1)
		go func() {
			_, err := m.Lock(ctx) // and not with the context of the other
			ended <- err
		}()
		record := log.One(t, "WARN", "another call of this Locker holds")
		require.Contains(t, record["lock"], f.Key("outer"))
		cancel()
		require.ErrorContains(t, testbed.Receive(t, ended), "has not its context")
		require.NoError(t, outer.Unlock(background))
	})
}

// The error of a deadlock says who waited for whom.
func TestDeadlockSaysWho(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PgxOpened())
		a, b := f.Key("first"), f.Key("second")
		other, err := f.Locks.Mutex(b).Lock(background)
		require.NoError(t, err)
		var failed, unlocked error
		require.NoError(t, f.Locks.Mutex(a).Do(background, func(ctx context.Context, tx pgx.Tx) error {
			// So that the other is the victim, which keeps what it had.
			require.NoError(t, f.Exec(ctx, tx, "SET LOCAL deadlock_timeout = '1h'"))
			over := make(chan struct{})
			go func() {
				defer close(over)
				_, failed = f.Locks.Mutex(a).Lock(other.Context())
				unlocked = other.Unlock(background)
			}()
			f.Waiters(t, 1)
			inner, err := f.Locks.Mutex(b).Lock(ctx)
			testbed.Receive(t, over)
			require.NoError(t, err)
			return inner.Unlock(ctx)
		}))
		require.NoError(t, unlocked)
		require.ErrorIs(t, failed, txlock.ErrDeadlock)
		require.ErrorContains(t, failed, "blocked by process")
	})
}
