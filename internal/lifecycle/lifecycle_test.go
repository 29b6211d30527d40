package lifecycle_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/lifecycle"
)

var (
	errLost     = errors.New("lost")
	errReturned = errors.New("the Do has returned")
	errUndone   = errors.New("undone")
	background  = context.Background()
)

func newLife() (*lifecycle.Life, *lifecycle.Handle, *lifecycle.Turns) {
	turns, whole := lifecycle.NewTurns()
	life, first := lifecycle.NewLife(whole)
	return life, first, turns
}

func TestTheLastHandleEndsTheSessionInWhicheverOrder(t *testing.T) {
	life, first, _ := newLife()
	second := first.Enter(first.Scope())
	ctx, other := first.Context(background), second.Context(background)

	last, err := first.Leave()
	require.False(t, last)
	require.NoError(t, err)
	require.Equal(t, context.Canceled, context.Cause(ctx))
	require.NoError(t, other.Err())
	last, err = first.Leave()
	require.False(t, last, "a second time gives nothing back")
	require.NoError(t, err)

	last, err = second.Leave()
	require.True(t, last)
	require.NoError(t, err)
	require.False(t, first.Open())
	require.Nil(t, first.Enter(first.Scope()), "nobody enters an ending session")
	require.False(t, life.BeginEnd(errReturned), "it has one end")
	life.MarkEnded()
	<-life.Ended()
}

func TestALossHasOneReasonAndEndsNothingElse(t *testing.T) {
	life, first, _ := newLife()
	ctx := first.Context(background)
	require.True(t, life.Lose(errLost))
	require.False(t, life.Lose(errUndone))
	require.Equal(t, errLost, life.Lost())
	require.Equal(t, errLost, context.Cause(ctx))
	require.Equal(t, errLost, first.Err())
	late := first.Enter(first.Scope())
	require.Equal(t, errLost, context.Cause(late.Context(background)), "of who enters later as well")

	_, err := late.Leave()
	require.Equal(t, errLost, err)
	last, err := first.Leave()
	require.True(t, last, "the connection is still to be given back")
	require.Equal(t, errLost, err)
}

func TestTheEndRevokesWhatIsLeft(t *testing.T) {
	for name, test := range map[string]struct {
		lose   bool
		reason error
	}{"alone": {false, errReturned}, "after a loss": {true, errLost}} {
		t.Run(name, func(t *testing.T) {
			life, first, _ := newLife()
			left := first.Enter(first.Scope())
			ctx := left.Context(background)
			if test.lose {
				life.Lose(errLost)
			}
			require.True(t, life.BeginEnd(errReturned))
			require.Equal(t, test.reason, context.Cause(ctx))
			last, err := left.Leave()
			require.False(t, last)
			require.Equal(t, test.reason, err)
			require.False(t, life.Lose(errUndone), "what has ended cannot be lost")
		})
	}
}

func TestUndoRevokesWhatWasTakenInside(t *testing.T) {
	life, first, turns := newLife()
	outer, err := turns.Take(background, first.Scope())
	require.NoError(t, err)
	inner := turns.Nest(outer)
	turn, err := turns.Take(background, inner)
	require.NoError(t, err)
	deepest := turns.Nest(turn)
	inside, deeper, before := first.Enter(inner), first.Enter(deepest), first.Enter(outer.Scope)
	ctx := deeper.Context(background)

	life.Undo(inner, errUndone)
	require.Equal(t, errUndone, context.Cause(ctx))
	require.Equal(t, errUndone, inside.Err())
	require.Equal(t, errUndone, context.Cause(inside.Context(background)), "that was granted just then")
	require.NoError(t, before.Err())
	require.True(t, first.Open())
	for _, handle := range []*lifecycle.Handle{inside, deeper, first.Enter(inner), first.Enter(deepest)} {
		require.Equal(t, errUndone, handle.Err(), "of who enters later as well")
		last, err := handle.Leave()
		require.False(t, last)
		require.Equal(t, errUndone, err)
	}
	last, _ := before.Leave()
	require.False(t, last)
	last, err = first.Leave()
	require.True(t, last, "what was undone is not waited for")
	require.NoError(t, err)
}

func TestALossIsTheBetterReason(t *testing.T) {
	life, first, turns := newLife()
	outer, err := turns.Take(background, first.Scope())
	require.NoError(t, err)
	inner := turns.Nest(outer)
	inside := first.Enter(inner)
	life.Lose(errLost)
	life.Undo(inner, errUndone)
	require.Equal(t, errLost, inside.Err())
	require.True(t, life.BeginEnd(errReturned))
	require.Equal(t, errLost, first.Err())
}

// Many callers leave, lose and end at once. Exactly one of them is told to give the connection
// back.
func TestOneCallerEndsTheSession(t *testing.T) {
	for range 200 {
		life, first, _ := newLife()
		handles := []*lifecycle.Handle{first, first.Enter(first.Scope()), first.Enter(first.Scope())}
		var ends atomic.Int32
		var group sync.WaitGroup
		for _, handle := range handles {
			group.Go(func() {
				handle.Context(background)
				if last, _ := handle.Leave(); last {
					ends.Add(1)
				}
			})
		}
		group.Go(func() { life.Lose(errLost) })
		group.Go(func() {
			if life.BeginEnd(errReturned) {
				ends.Add(1)
			}
		})
		group.Wait()
		require.EqualValues(t, 1, ends.Load())
	}
}
