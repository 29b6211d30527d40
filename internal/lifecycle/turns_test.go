package lifecycle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/lifecycle"
)

// taking takes a turn in the background. The channel receives the result.
func taking(ctx context.Context, turns *lifecycle.Turns, scope *lifecycle.Scope) <-chan error {
	taken := make(chan error, 1)
	go func() {
		_, err := turns.Take(ctx, scope)
		taken <- err
	}()
	return taken
}

// free tells whether a heartbeat may send.
func free(turns *lifecycle.Turns) bool {
	turn, ok := turns.Try()
	if ok {
		turn.Give()
	}
	return ok
}

func TestCallsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, whole := lifecycle.NewTurns()
		first, err := turns.Take(background, whole)
		require.NoError(t, err)
		require.False(t, free(turns), "a heartbeat waits for nobody")
		second := taking(background, turns, whole)
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		require.ErrorIs(t, <-taking(ctx, turns, whole), context.DeadlineExceeded)
		synctest.Wait()
		require.Empty(t, second)
		first.Give()
		require.NoError(t, <-second)
	})
}

func TestANestedDoLetsNobodyElseSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, whole := lifecycle.NewTurns()
		outer, err := turns.Take(background, whole)
		require.NoError(t, err)
		beside := taking(background, turns, whole)
		synctest.Wait()
		inner := turns.Nest(outer)
		require.ErrorIs(t, <-beside, lifecycle.ErrNested, "who waits is told")
		require.ErrorIs(t, <-taking(background, turns, whole), lifecycle.ErrNested, "who comes is told")
		require.False(t, free(turns))

		turn, err := turns.Take(background, inner)
		require.NoError(t, err)
		require.Same(t, inner, turn.Scope)
		turn.Give()
		turns.Unnest(inner, time.Second, func() { t.Error("nothing is under way") })
		waits := taking(background, turns, inner) // for the turn of the surrounding scope
		synctest.Wait()
		require.Empty(t, waits, "the nested Do has not finished with its savepoint")
		outer.Give()
		require.NoError(t, <-waits)
	})
}

func TestWhatIsUnderWayInANestedDoIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, whole := lifecycle.NewTurns()
		outer, err := turns.Take(background, whole)
		require.NoError(t, err)
		inner := turns.Nest(outer)
		call, err := turns.Take(background, inner)
		require.NoError(t, err)
		overdue := false
		start := time.Now()
		turns.Unnest(inner, time.Second, func() {
			call.Give()
			time.Sleep(time.Second) // Unnest returns only after overdue has, so nobody else uses the connection before
			overdue = true
		})
		require.True(t, overdue)
		require.Equal(t, 2*time.Second, time.Since(start))
	})
}

func TestTheLastTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, whole := lifecycle.NewTurns()
		call, err := turns.Take(background, whole)
		require.NoError(t, err)
		require.False(t, turns.Close(time.Second), "a call is under way")
		waits := taking(background, turns, whole)
		synctest.Wait()
		go call.Give()
		if err := <-waits; err == nil { // it may have been first in the queue
			(&lifecycle.Turn{Scope: whole}).Give()
		}
		require.True(t, turns.Close(time.Second))
		require.ErrorIs(t, <-taking(background, turns, whole), lifecycle.ErrEnded)
		require.False(t, free(turns))
	})
}

func TestACallThatANestedDoLeftBehindGoesOnAroundIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, whole := lifecycle.NewTurns()
		outer, err := turns.Take(background, whole)
		require.NoError(t, err)
		inner := turns.Nest(outer)
		call, err := turns.Take(background, inner)
		require.NoError(t, err)
		go turns.Unnest(inner, time.Hour, func() {})
		synctest.Wait()
		waits := taking(background, turns, inner) // behind Unnest, which takes the last turn of this scope
		synctest.Wait()
		call.Give()
		synctest.Wait()
		require.Empty(t, waits, "the nested Do has not finished with its savepoint")
		outer.Give()
		require.NoError(t, <-waits)
		(&lifecycle.Turn{Scope: whole}).Give()
		require.True(t, turns.Close(time.Second))
		require.ErrorIs(t, <-taking(background, turns, inner), lifecycle.ErrEnded)
	})
}

func TestNestedDosAreAStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, whole := lifecycle.NewTurns()
		outer, err := turns.Take(background, whole)
		require.NoError(t, err)
		middle := turns.Nest(outer)
		turn, err := turns.Take(background, middle)
		require.NoError(t, err)
		inner := turns.Nest(turn)
		turns.Unnest(inner, time.Second, nil)
		turn.Give()
		require.ErrorIs(t, <-taking(background, turns, whole), lifecycle.ErrNested)
		turn, err = turns.Take(background, inner)
		require.NoError(t, err)
		require.Same(t, middle, turn.Scope)
		turn.Give()
		turns.Unnest(middle, time.Second, nil)
		outer.Give()
		turn, err = turns.Take(background, inner)
		require.NoError(t, err)
		require.Same(t, whole, turn.Scope)
	})
}
