package guarantees

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// story is what a tracer was told, in order. Each line is "<number of the call> <what> <how it
// went>".
type story struct {
	mu    sync.Mutex
	calls []txlock.Call
	lines []string
	told  []error // with each line
}

type storyKey struct{}

// Asked gives the call a number, which Answered and Ended find in the context.
func (s *story) Asked(ctx context.Context, call txlock.Call) context.Context {
	s.mu.Lock()
	s.calls = append(s.calls, call)
	n := len(s.calls)
	s.mu.Unlock()
	ctx = context.WithValue(ctx, storyKey{}, n)
	s.tell(ctx, "asked by "+call.Name, nil)
	return ctx
}

// Answered is told with the error. A candidacy that ran out of time on a busy machine is forgotten:
// Lead makes another.
func (s *story) Answered(ctx context.Context, err error) {
	s.mu.Lock()
	n := len(s.calls)
	late := n > 0 && s.calls[n-1].Name == "Lead" && errors.Is(err, context.DeadlineExceeded)
	if late { // its only line says that it was asked
		s.calls, s.lines, s.told = s.calls[:n-1], s.lines[:len(s.lines)-1], s.told[:len(s.told)-1]
	}
	s.mu.Unlock()
	if !late {
		s.tell(ctx, "answered", err)
	}
}

// Ended is told with the error.
func (s *story) Ended(ctx context.Context, err error) { s.tell(ctx, "ended", err) }

func (s *story) tell(ctx context.Context, what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	number, _ := ctx.Value(storyKey{}).(int)
	line := fmt.Sprintf("%d %s", number, what)
	if err != nil {
		line += ": error"
	}
	s.lines = append(s.lines, line)
	s.told = append(s.told, err)
}

// take waits until as many lines were told as are wanted, checks them, and returns their errors. It
// waits because some ends are told in the background: of a lost Lock, and of one released with a
// Do.
func (s *story) take(t *testing.T, want ...string) (told []error) {
	t.Helper()
	lines, told := s.all(t, len(want))
	require.Equal(t, want, lines)
	return told
}

// takeSome is take in any order.
func (s *story) takeSome(t *testing.T, want ...string) (told []error) {
	t.Helper()
	lines, told := s.all(t, len(want))
	require.ElementsMatch(t, want, lines)
	return told
}

func (s *story) all(t *testing.T, n int) (lines []string, told []error) {
	t.Helper()
	eventually.Every(t, fmt.Sprintf("%d lines", n), time.Millisecond, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.lines) >= n
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	lines, told = s.lines, s.told
	s.lines, s.told, s.calls = nil, nil, nil
	return lines, told
}

// asked is the last call that was asked.
func (s *story) asked(t *testing.T) txlock.Call {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NotEmpty(t, s.calls)
	return s.calls[len(s.calls)-1]
}

// traced is a fixture with a tracer, and another one on the same server without.
func traced[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) (f, other *testbed.Fixture[Tx], s *story) {
	t.Helper()
	s = &story{}
	t.Cleanup(func() { require.Empty(t, s.lines, "told late") }) // after the fixture and its goroutines have ended
	other = testbed.NewFixture(t, e, c)
	return testbed.NewSizedFixture(t, e, c, testbed.PoolSize, "", txlock.WithTracer(s)), other, s
}

// TracedCalls shows that a tracer is told of each call once and in order.
func TracedCalls[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, other, s := traced(t, e, c)
	m := f.Locks.Mutex(f.Key("m"))
	lock := testbed.Lock(t, m)
	system := map[bool]string{true: "postgresql", false: "mysql"}[e.Postgres]
	require.Equal(t, txlock.Call{Name: "Lock", System: system, Table: e.Table(), Names: []string{f.Key("m")}},
		s.asked(t))
	s.take(t, "1 asked by Lock", "1 answered")
	testbed.Unlock(t, lock)
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrNotHeld)
	s.take(t, "1 ended")

	var number any
	work := func(ctx context.Context, _ Tx) error {
		number = ctx.Value(storyKey{})
		return nil
	}
	require.NoError(t, m.Do(background, func(ctx context.Context, tx Tx) error {
		s.take(t, "1 asked by Do", "1 answered")
		return work(ctx, tx)
	}))
	require.Equal(t, 1, number, "the work inherits the values")
	s.take(t, "1 ended")
	require.NoError(t, m.TryDo(background, work))
	s.take(t, "1 asked by TryDo", "1 answered", "1 ended")
	lock = testbed.TryLock(t, m)
	require.Equal(t, 1, lock.Context().Value(storyKey{}), "Lock.Context inherits the values")
	testbed.Unlock(t, lock)
	s.take(t, "1 asked by TryLock", "1 answered", "1 ended")

	tx := f.Guest(t)
	require.NoError(t, m.LockTx(background, tx))
	require.NoError(t, m.TryLockTx(background, tx))
	require.NoError(t, f.End(background, tx, true))
	s.take(t, "1 asked by LockTx", "1 answered", "2 asked by TryLockTx", "2 answered")
	other.Free(t, f.Key("m"))
}

// TracedFailures: a call that was not granted has no end.
func TracedFailures[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, other, s := traced(t, e, c)
	m := f.Locks.Mutex(f.Key("m"))
	holder := testbed.Lock(t, other.Locks.Mutex(f.Key("m")))
	for name, missed := range map[string]func() error{
		"TryLock": func() error { _, err := m.TryLock(background); return err },
		"TryDo":   func() error { return m.TryDo(background, idle[Tx]) },
		"TryLockTx": func() error {
			tx := f.Guest(t)
			defer func() { assert.NoError(t, f.End(background, tx, false)) }()
			return m.TryLockTx(background, tx)
		},
	} {
		err := missed()
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		require.Equal(t, []error{nil, err}, s.take(t, "1 asked by "+name, "1 answered: error"),
			"with the error of the call")
	}
	for _, name := range []string{"Lock", "Do", "LockTx"} {
		ctx, cancel := context.WithCancel(background)
		failed := testbed.Go(func() error { return verbs(f, m)[name](ctx) })
		f.Waiters(t, 1)
		require.Equal(t, name, s.asked(t).Name)
		s.take(t, "1 asked by "+name)
		cancel()
		require.ErrorIs(t, testbed.Receive(t, failed), context.Canceled)
		require.ErrorIs(t, s.take(t, "1 answered: error")[0], context.Canceled)
		require.ErrorIs(t, verbs(f, m)[name](ctx), context.Canceled)
		s.take(t, "1 asked by "+name, "1 answered: error")
	}
	testbed.Unlock(t, holder)
	require.Error(t, testbed.ErrorOf(f.Locks.Mutex().Lock(background)))
	s.take(t, "1 asked by Lock", "1 answered: error")
	require.Error(t, m.Do(background, nil))
	s.take(t)
}

// TracedWork: the end of a Do is told with its error, however the work ends.
func TracedWork[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, other, s := traced(t, e, c)
	table := f.MakeTable(t, "id int primary key", "(42)")
	rows := f.Locks.Rows(table, "id", 42)
	for name, do := range map[string]func(context.Context, func(context.Context, Tx) error) error{
		"Do":    rows.Do,
		"TryDo": rows.TryDo,
	} {
		err := do(background, func(context.Context, Tx) error { return errWork })
		call := s.asked(t)
		require.Equal(t, txlock.Call{
			Name: name, System: call.System, Table: table, Column: "id",
			Names: []string{"42"},
		}, call)
		require.Equal(t, []error{nil, nil, err}, s.take(t, "1 asked by "+name, "1 answered", "1 ended: error"))
		require.Panics(t, func() { _ = do(background, func(context.Context, Tx) error { panic("boom") }) })
		require.Equal(t, []error{nil, nil, txlock.ErrPanicked},
			s.take(t, "1 asked by "+name, "1 answered", "1 ended: error"))
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_ = do(background, func(context.Context, Tx) error { runtime.Goexit(); return nil })
		}()
		testbed.Receive(t, gone)
		s.take(t, "1 asked by "+name, "1 answered", "1 ended: error")
		ctx, cancel := context.WithCancel(background)
		err = do(ctx, func(context.Context, Tx) error { cancel(); return nil })
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, []error{nil, nil, err}, s.take(t, "1 asked by "+name, "1 answered", "1 ended: error"))
		err = do(background, func(_ context.Context, tx Tx) error { f.KillSession(t, tx); return nil })
		require.ErrorIs(t, err, txlock.ErrLost)
		require.Equal(t, []error{nil, nil, err}, s.take(t, "1 asked by "+name, "1 answered", "1 ended: error"))
		f.Transactions(t, 0) // the server has released the row
	}
	require.NoError(t, other.Locks.Rows(table, "id", 42).TryDo(background, idle[Tx]))
}

// TracedNesting: calls that join a session are told one by one.
func TracedNesting[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, other, s := traced(t, e, c)
	a, b := f.Locks.Mutex(f.Key("a")), f.Locks.Mutex(f.Key("b"))
	outer := testbed.Lock(t, a)
	require.False(t, s.asked(t).Nested)
	inner := testbed.LockIn(t, outer.Context(), b)
	require.True(t, s.asked(t).Nested)
	tried := testbed.TryLockIn(t, inner.Context(), a)
	testbed.Unlock(t, tried)
	refused := a.Do(outer.Context(), idle[Tx])
	require.ErrorIs(t, refused, txlock.ErrInsideLock)
	testbed.Unlock(t, outer, inner)
	s.take(t, "1 asked by Lock", "1 answered", "2 asked by Lock", "2 answered",
		"3 asked by TryLock", "3 answered", "3 ended", "4 asked by Do", "4 answered: error", "1 ended", "2 ended")

	ended := context.WithoutCancel(inner.Context())
	require.NoError(t, a.Do(ended, func(ctx context.Context, _ Tx) error {
		require.False(t, s.asked(t).Nested, "the session has ended")
		require.Equal(t, errWork, b.Do(ctx, func(ctx context.Context, _ Tx) error {
			require.True(t, s.asked(t).Nested)
			_, err := b.Lock(ctx) // it ends with the outermost Do
			require.NoError(t, err)
			return errWork
		}))
		s.take(t, "1 asked by Do", "1 answered", "2 asked by Do", "2 answered", "3 asked by Lock", "3 answered",
			"2 ended: error")
		tx := f.Guest(t)
		require.NoError(t, f.Locks.Mutex(f.Key("c")).LockTx(ctx, tx))
		require.False(t, s.asked(t).Nested, "it is in the caller's transaction")
		s.take(t, "1 asked by LockTx", "1 answered")
		require.NoError(t, f.End(background, tx, false))
		return nil
	}))
	s.takeSome(t, "1 ended", "3 ended")

	for range 50 { // the end of what a Do released is told in the background, or by an Unlock that comes at once
		var left *txlock.Lock
		require.NoError(t, a.Do(background, func(ctx context.Context, _ Tx) (err error) {
			left, err = b.Lock(ctx)
			return err
		}))
		require.ErrorIs(t, left.Unlock(background), txlock.ErrNotHeld)
		s.takeSome(t, "1 answered", "1 asked by Do", "1 ended", "2 answered", "2 asked by Lock", "2 ended")
	}
	other.Free(t, f.Key("a"), f.Key("b"))
}

// TracedLoss: the end of a lost Lock is told once, before its Unlock.
func TracedLoss[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, other, s := traced(t, e, c)
	for _, lose := range []func(){func() { f.KillSessions(t) }, func() { require.NoError(t, f.Locks.Close()) }} {
		outer := testbed.Lock(t, f.Locks.Mutex(f.Key("outer")))
		inner := testbed.LockIn(t, outer.Context(), f.Locks.Mutex(f.Key("inner")))
		s.take(t, "1 asked by Lock", "1 answered", "2 asked by Lock", "2 answered")
		lose()
		for _, told := range s.takeSome(t, "1 ended: error", "2 ended: error") {
			require.ErrorIs(t, told, txlock.ErrLost)
		}
		require.ErrorIs(t, inner.Unlock(background), txlock.ErrLost)
		require.ErrorIs(t, outer.Unlock(background), txlock.ErrLost)
		s.take(t)
		f.Transactions(t, 0) // a client may be told before the server has rolled back
		other.Free(t, f.Key("outer"), f.Key("inner"))
	}
	require.ErrorContains(t, testbed.ErrorOf(f.Locks.Mutex(f.Key("outer")).Lock(background)), "closed")
	s.take(t, "1 asked by Lock", "1 answered: error")
}
