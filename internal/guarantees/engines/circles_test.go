package engines

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/internal/guarantees/testbed"
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

// The error of a deadlock says who waited for whom, and which keys the other shows.
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
		require.ErrorContains(t, failed, "["+a)
	})
}

// The error of a deadlock of two sessions that have no key in common says whom it met, and which
// keys share a slot, whichever session is the victim. InnoDB shows its latest deadlock only, which
// may be that of another test: then the error says no more than the server's, and it is tried anew.
func TestDeadlockOfSlots(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PgxOpened())
		_, err := deadlockOfSlots(t, f, f.Locks)
		require.ErrorContains(t, err, " share slot ")
	})
	eachMySQL(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.MySQLOpened())
		told := func(locks *txlock.Locker[*sql.Tx]) (others []string, err error) {
			for range 5 {
				var more dialects.DeadlockError
				if others, err = deadlockOfSlots(t, f, locks); errors.As(err, &more) {
					break
				}
			}
			return others, err
		}
		others, err := told(f.Locks)
		require.Regexp(t, fmt.Sprintf(` \(with connection \d+ of process %d, which waited for \[%[3]s\]\); `+
			`keys "%[2]s" and "%[3]s" share slot %[4]d, `, os.Getpid(), others[0], others[1],
			testbed.SlotOf(others[1], 65536)), err)

		hidden := testbed.NewSizedFixture(t, e, testbed.MySQLOpened(), 4, "", txlock.WithHiddenKeys())
		others, err = told(hidden.Locks)
		require.ErrorContains(t, err, fmt.Sprintf("waited for [~%d])", testbed.SlotOf(others[1], 65536)))
		for _, key := range others {
			require.NotContains(t, err.Error(), key)
		}

		driver, err := mysql.Open(background, ordinaryUser(t, f).FormatDSN())
		require.NoError(t, err)
		may := txlock.New(driver, txlock.WithTable(f.Table()))
		_, err = deadlockOfSlots(t, f, may) // who may not see it gets the server's error
		var more dialects.DeadlockError
		require.False(t, errors.As(err, &more), err)
		require.NoError(t, may.Close())
	})
}

// deadlockOfSlots has two sessions wait for each other, whose keys share slots. It returns the
// error of the victim: a key that it held, and that of the other which shares its slot.
func deadlockOfSlots[Tx any](t *testing.T, f *testbed.Fixture[Tx], locks *txlock.Locker[Tx]) (
	pair []string, err error,
) {
	t.Helper()
	twin := func(key string) string {
		for i := 0; ; i++ {
			if twin := fmt.Sprint("t", i); testbed.SlotOf(twin, 65536) == testbed.SlotOf(key, 65536) {
				return twin
			}
		}
	}
	a, b := f.Key("a"), f.Key("b")
	twinA, twinB := twin(a), twin(b)
	var both sync.WaitGroup
	both.Add(2)
	failed, over := make(chan []string, 1), make(chan error, 2)
	known := make(chan struct{}) // for the other to be there when the victim asks who it is
	for _, of := range [][]string{{a, b, twinA}, {twinB, twinA, b}} {
		go func() {
			over <- locks.Mutex(of[0]).Do(background, func(ctx context.Context, _ Tx) error {
				both.Done()
				both.Wait()
				inner, err := locks.Mutex(of[1]).Lock(ctx)
				if err != nil {
					failed <- []string{of[0], of[2]}
					close(known)
					return err
				}
				<-known
				return inner.Unlock(ctx)
			})
		}()
	}
	pair = testbed.Receive(t, failed)
	err = errors.Join(testbed.Receive(t, over), testbed.Receive(t, over))
	require.ErrorIs(t, err, txlock.ErrDeadlock)
	return pair, err
}
