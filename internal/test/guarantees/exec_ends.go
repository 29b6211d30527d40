package guarantees

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// ExecWaits shows that Exec waits for the lock as Do does, and that only the wait is bounded by
// Within.
func ExecWaits[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newStock(t, testbed.NewFixture(t, e, c))
	m := s.Locks.Mutex(s.key)
	session, release := s.HoldInDo(t, s.key)
	require.NotEmpty(t, session)
	require.ErrorIs(t, testbed.ErrorOf(m.TryExec(background, s.take(1))), txlock.ErrNotAcquired)
	_, err := m.Within(50*time.Millisecond).Exec(background, s.take(1))
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	ctx, cancel := context.WithCancel(background)
	done := make(chan error, 1)
	start := func(m *txlock.Mutex[Tx]) {
		go func() { done <- testbed.ErrorOf(m.Exec(ctx, s.take(1))) }()
	}
	start(m)
	s.Waiters(t, 1)
	cancel()
	err = testbed.Receive(t, done)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	require.ErrorIs(t, err, context.Canceled)
	s.Waiters(t, 0)
	ctx = background
	start(m)
	s.Waiters(t, 1)
	require.NoError(t, release())
	require.NoError(t, testbed.Receive(t, done))
	require.Equal(t, 9, s.left(t))

	// The statements take longer than Within. What ctx ends is not committed.
	slow := s.statement("SELECT SLEEP(1.5)")
	if s.Postgres {
		slow = s.statement("SELECT pg_sleep(1.5)")
	}
	require.NoError(t, testbed.ErrorOf(m.Within(time.Second).Exec(background, s.take(1), slow)))
	require.Equal(t, 8, s.left(t))
	slow.SQL = strings.Replace(slow.SQL, "1.5", "300", 1)
	brief, cancel := context.WithTimeout(background, 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, testbed.ErrorOf(m.Exec(brief, s.take(1), slow)), context.DeadlineExceeded)
	require.Equal(t, 8, s.left(t))
	s.Transactions(t, 0)
	s.Free(t, s.key)
}

// ExecSelfEnded shows that what comes behind a COMMIT or a ROLLBACK among the statements is not
// committed.
func ExecSelfEnded[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newStock(t, testbed.NewFixture(t, e, c))
	id := 2 // each another: where it is unguarded, the last one may be there
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		for _, into := range []bool{false, true} {
			behind := s.statement("SELECT n FROM stock WHERE id = 1")
			if n := new(int); into {
				behind.Into = []any{n}
			}
			id++
			_, err := s.Locks.Mutex(s.key).Exec(background, behind, s.statement(end), s.insert(id))
			require.ErrorIs(t, err, txlock.ErrLost, end)
			if !c.Unguarded {
				s.unchanged(t)
			}
		}
	}
}

// ExecCut shows that an Exec whose connection breaks while it waits for its lock does not say that
// nothing is committed: all of it may be at the server.
func ExecCut[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	proxy := testbed.Proxy(t, e)
	s := newStock(t, testbed.NewSizedFixture(t, e, c, 4, proxy.Addr()))
	holder := testbed.Lock(t, testbed.NewFixture(t, e, c).Locks.Mutex(s.key))
	done := testbed.Go(func() error {
		return testbed.ErrorOf(s.Locks.Mutex(s.key).Exec(background, s.insert(3), s.take(1)))
	})
	s.Waiters(t, 1)
	proxy.Cut()
	err := testbed.Receive(t, done)
	require.Error(t, err)
	testbed.Unlock(t, holder)
	s.Transactions(t, 0)
	if s.count(t) == 2 && !errors.Is(err, txlock.ErrLost) { // it was no flight
		s.unchanged(t)
		return
	}
	require.ErrorIs(t, err, txlock.ErrLost)
	require.ErrorIs(t, err, txlock.ErrUnknown)
	require.Equal(t, 10-(s.count(t)-2), s.left(t), "all of it or nothing")
}

// ExecKilled shows that an Exec whose context ends, or whose session is killed, while one of its
// statements waits, commits nothing.
func ExecKilled[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newStock(t, testbed.NewFixture(t, e, c))
	stranger := database.Begin(t, s.Admin, "UPDATE "+s.table+" SET n = 0 WHERE id = 1")
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	for _, end := range []func(){cancel, func() { s.KillSessions(t) }} {
		done := testbed.Go(func() error {
			return testbed.ErrorOf(s.Locks.Mutex(s.key).Within(time.Minute).Exec(ctx, s.insert(3), s.take(1)))
		})
		s.Waiters(t, 1) // in its second statement
		end()
		err := testbed.Receive(t, done)
		if ctx != background {
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorContains(t, err, "statement 2: ")
			require.NotErrorIs(t, err, txlock.ErrNotAcquired)
		} else {
			require.ErrorIs(t, err, txlock.ErrLost)
		}
		ctx = background
	}
	require.NoError(t, stranger.Rollback())
	s.Transactions(t, 0)
	s.unchanged(t)
}
