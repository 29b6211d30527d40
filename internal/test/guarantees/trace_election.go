package guarantees

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// ElectionTraced shows that a tracer is told of each term.
func ElectionTraced[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, other, s := traced(t, e, c)
	me := f.Locks.Election(f.Key("traced"), "me")
	require.Equal(t, errWork, me.Lead(background, func(ctx context.Context, _ int64) error {
		require.Equal(t, 1, ctx.Value(storyKey{}))
		call := s.asked(t)
		require.Equal(t, "Lead election", call.Name+" "+call.Column)
		require.Equal(t, []string{f.Key("traced")}, call.Names)
		s.take(t, "1 asked by Lead", "1 answered")
		return errWork
	}))
	require.Equal(t, []error{errWork}, s.take(t, "1 ended: error"))
	require.NoError(t, me.Lead(background, func(context.Context, int64) error { return nil }))
	s.take(t, "1 asked by Lead", "1 answered", "1 ended")
	require.Panics(t, func() {
		_ = me.Lead(background, func(context.Context, int64) error { panic("boom") })
	})
	told := s.take(t, "1 asked by Lead", "1 answered", "1 ended: error")
	require.Equal(t, txlock.ErrPanicked, told[2])

	first := candidacy(t, other.Locks.Election(f.Key("traced"), "first"))
	testbed.Receive(t, first.terms)
	second := candidacy(t, me)
	f.Waiters(t, 1)
	second.leave()
	require.ErrorIs(t, testbed.Receive(t, second.over), context.Canceled)
	s.take(t, "1 asked by Lead", "1 answered: error")
	first.leave()
	require.Error(t, testbed.Receive(t, first.over))

	third := candidacy(t, me)
	lost := testbed.Receive(t, third.terms)
	s.take(t, "1 asked by Lead", "1 answered")
	f.KillSessions(t)
	testbed.Receive(t, lost.ctx.Done())
	again := testbed.Receive(t, third.terms)
	lines, told := s.all(t, 3)
	require.Equal(t, []string{"1 ended: error", "1 asked by Lead"}, lines[:2])
	require.ErrorIs(t, told[0], txlock.ErrLost)
	for led := false; !led; { // more terms, if that one had a connection that was killed as well
		again.end <- nil
		select {
		case err := <-third.over:
			require.NoError(t, err)
			led = true
		case again = <-third.terms:
		case <-time.After(eventually.Patience):
			require.Fail(t, "Lead does not return")
		}
	}
	_, told = s.all(t, 1)
	require.NoError(t, told[len(told)-1])
}
