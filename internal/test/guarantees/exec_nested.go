package guarantees

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
)

// ExecNested shows that Exec in the work of a Do is part of its transaction.
func ExecNested[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newStock(t, testbed.NewFixture(t, e, c))
	require.NoError(t, s.Locks.Mutex(s.Key("outer")).Do(background, func(ctx context.Context, tx Tx) error {
		for i, key := range []string{s.key, s.Key("outer"), s.Key("further")} {
			require.Equal(t, []int64{1}, must.Get(s.Locks.Mutex(key).Exec(ctx, s.take(1)))(t))
			require.ErrorIs(t, testbed.ErrorOf(s.Locks.Mutex(key).Exec(ctx, s.insert(3), s.take(7))), txlock.ErrRows)
			_, err := s.Locks.Mutex(s.Key("never")).Exec(ctx, s.insert(3), s.statement("UPDAT stock "+strconv.Itoa(i)))
			require.ErrorContains(t, err, "statement 2")
		}
		require.Equal(t, 10, s.left(t))
		return s.Exec(ctx, tx, "INSERT INTO "+s.table+" VALUES (5, 5, '')")
	}))
	require.Equal(t, 7, s.left(t))
	require.Equal(t, 3, s.count(t))
	lock := testbed.Lock(t, s.Locks.Mutex(s.key))
	require.ErrorIs(t, testbed.ErrorOf(s.Locks.Mutex(s.key).Exec(lock.Context(), s.take(1))), txlock.ErrInsideLock)
	testbed.Unlock(t, lock)
	require.Equal(t, 7, s.left(t))
}

// ExecNestedFails shows that an Exec that fails in the work of a Do undoes what it has done, and no
// more: that Do goes on, with its changes and its lock, and commits.
func ExecNestedFails[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newStock(t, testbed.NewFixture(t, e, c))
	outer := s.Key("outer")
	twice := s.take(1)
	twice.SQL = strings.Replace(twice.SQL, " AND ", " AND n > 100 AND ", 1)
	none := s.statement("SELECT n FROM stock WHERE id = @", 77)
	none.Into = []any{new(int)}
	failing := []txlock.Statement{
		twice, s.take(2), none, s.insert(1), s.insert(5), s.statement("UPDAT stock SET n = 1"),
		s.statement("UPDATE stock SET n = = @", 1), s.statement("INSERT INTO nowhere VALUES (@)", 1),
		s.statement("UPDATE stock SET n = 1 WHERE id = @ OR id = @", 1), s.statement("UPDATE stock SET n = 1", 1, 2),
		s.statement("UPDATE stock SET n = @", make(chan int)),
	}
	if s.Postgres {
		failing = append(failing, s.statement("UPDATE stock SET n = 1 / @::int", 0),
			s.statement("UPDATE stock SET n = @", "x"), s.statement("UPDATE stock SET n = @", 1<<40),
			s.statement("UPDATE stock SET n = 1", make([]any, 70_000)...))
	}
	require.NoError(t, s.Locks.Mutex(outer).Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, s.Exec(ctx, tx, "INSERT INTO "+s.table+" VALUES (5, 5, '')"))
		for i, one := range failing {
			for _, key := range []string{outer, s.key} {
				for range 2 { // the second time the client library knows the statements
					if s.Pooled { // PgBouncer ends a client that prepares anew what the server has refused
						one.SQL += " /* again */"
					}
					m := s.Locks.Mutex(key)
					affected, err := m.Exec(ctx, s.insert(100+i), one, s.take(0))
					require.ErrorContains(t, err, "statement 2: ", one.SQL)
					require.Nil(t, affected)
					require.NotErrorIs(t, err, txlock.ErrLost, one.SQL)
					require.NotErrorIs(t, err, txlock.ErrNotAcquired, one.SQL)
					require.Equal(t, i < 3, errors.Is(err, txlock.ErrRows), "%s: %v", one.SQL, err)
					s.Taken(t, outer)
					if !s.Postgres { // where the savepoint has released it
						s.Taken(t, key)
					}
				}
			}
		}
		require.PanicsWithValue(t, "of an argument", func() {
			_, _ = s.Locks.Mutex(outer).Exec(ctx, s.insert(200), s.statement("UPDATE stock SET n = @", panics{}))
		})
		shared := s.Locks.Mutex(s.Key("shared"))
		require.ErrorIs(t, testbed.ErrorOf(shared.Shared().Exec(ctx, twice)), txlock.ErrRows)
		s.Taken(t, outer)
		return nil
	}))
	require.Equal(t, 10, s.left(t))
	require.Equal(t, 3, s.count(t))
	s.Free(t, s.key)
	s.Unused(t)
}

// ExecNestedEnds shows that an Exec in the work of a Do may end in its wait, or while one of its
// statements runs, and that Do goes on.
func ExecNestedEnds[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newStock(t, testbed.NewFixture(t, e, c))
	other := testbed.NewFixture(t, e, c)
	held := testbed.Lock(t, other.Locks.Mutex(s.key))
	database.Begin(t, s.Admin, "UPDATE "+s.table+" SET n = 0 WHERE id = 2")
	waits := s.statement("UPDATE stock SET n = n + 1 WHERE id = @", 2)
	require.NoError(t, s.Locks.Mutex(s.Key("outer")).Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, s.Exec(ctx, tx, "INSERT INTO "+s.table+" VALUES (5, 5, '')"))
		require.ErrorIs(t, testbed.ErrorOf(s.Locks.Mutex(s.key).TryExec(ctx, s.insert(3))), txlock.ErrNotAcquired)
		_, err := s.Locks.Mutex(s.key).Within(50*time.Millisecond).Exec(ctx, s.insert(3))
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		for _, key := range []string{s.key, s.Key("outer"), s.Key("further")} {
			brief, cancel := context.WithCancel(ctx)
			done := testbed.Go(func() error {
				return testbed.ErrorOf(s.Locks.Mutex(key).Exec(brief, s.insert(3), waits))
			})
			s.Waiters(t, 1)
			cancel()
			err := testbed.Receive(t, done)
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, txlock.ErrLost)
			require.Equal(t, key == s.key, errors.Is(err, txlock.ErrNotAcquired), "%v", err)
		}
		sleeps := s.statement("SELECT SLEEP(300)")
		if s.Postgres {
			sleeps = s.statement("SELECT pg_sleep(300)")
		}
		brief, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_, err = s.Locks.Mutex(s.Key("further")).Exec(brief, s.insert(3), sleeps)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, txlock.ErrLost)
		affected := must.Get(s.Locks.Mutex(s.Key("further")).Within(time.Minute).Exec(ctx, s.take(1)))(t)
		require.Equal(t, []int64{1}, affected)
		return nil
	}))
	testbed.Unlock(t, held)
	require.Equal(t, 9, s.left(t))
	require.Equal(t, 3, s.count(t))
}

// ExecPassesOn shows that a statement behind an Into has for its argument what that was filled
// with.
func ExecPassesOn[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newStock(t, testbed.NewFixture(t, e, c))
	m := s.Locks.Mutex(s.key)
	for i, exec := range []func(...txlock.Statement) ([]int64, error){
		func(list ...txlock.Statement) ([]int64, error) { return m.Exec(background, list...) },
		func(list ...txlock.Statement) ([]int64, error) { return m.TryExec(background, list...) },
		func(list ...txlock.Statement) (affected []int64, err error) {
			err = m.Do(background, func(ctx context.Context, _ Tx) (err error) {
				affected, err = m.Exec(ctx, list...)
				return err
			})
			return affected, err
		},
	} {
		id, note := 0, ""
		parent := s.statement("SELECT id + @ FROM stock WHERE id = 2", 10*(i+1))
		parent.Into = []any{&id}
		child := s.statement("INSERT INTO stock VALUES (@, 1, @)", &id, fmt.Sprint("child ", i))
		read := s.statement("SELECT note FROM stock WHERE id = @", &id)
		read.Into = []any{&note}
		mark := s.statement("UPDATE stock SET n = 77 WHERE note = @", &note)
		mark.Rows = 1
		require.Equal(t, []int64{1, 1, 1, 1, 1}, must.Get(exec(s.take(1), parent, child, read, mark))(t))
		require.Equal(t, 10*(i+1)+2, id)
		require.Equal(t, 77, s.Total(t, fmt.Sprintf("SELECT n FROM %s WHERE id = %d", s.table, id)))

		mark.Rows = 3
		parent.Args = []any{100}
		_, err := exec(s.take(1), parent, child, read, mark)
		require.ErrorIs(t, err, txlock.ErrRows)
		var of *dialects.StatementError
		require.ErrorAs(t, err, &of)
		require.Equal(t, 5, of.Number)
		require.Equal(t, 9-i, s.left(t))
		require.Equal(t, 3+i, s.count(t))
	}
	s.Free(t, s.key)
}

// ExecWaits shows that Exec waits for the lock as Do does, and that only the wait is bounded by
// Within.
func ExecWaits[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newStock(t, testbed.NewFixture(t, e, c))
	m := s.Locks.Mutex(s.key)
	session, release := s.HoldInDo(t, s.key)
	require.NotEmpty(t, session)
	require.ErrorIs(t, testbed.ErrorOf(m.TryExec(background, s.take(1))), txlock.ErrNotAcquired)
	_, err := m.Within(50*time.Millisecond).Exec(background, s.take(1))
	testbed.ErrorIs(t, err, txlock.ErrNotAcquired, context.DeadlineExceeded)
	ctx, cancel := context.WithCancel(background)
	done := make(chan error, 1)
	start := func(m *txlock.Mutex[Tx]) {
		go func() { done <- testbed.ErrorOf(m.Exec(ctx, s.take(1))) }()
	}
	start(m)
	s.Waiters(t, 1)
	cancel()
	testbed.ErrorIs(t, testbed.Receive(t, done), txlock.ErrNotAcquired, context.Canceled)
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
	testbed.ErrorIs(t, err, txlock.ErrLost, txlock.ErrUnknown)
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
