package lifecycle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/lifecycle"
)

// taking takes a turn in the background, and says how that ended.
func taking(ctx context.Context, turns *lifecycle.Turns, scope *lifecycle.Scope) <-chan error {
	taken := make(chan error, 1)
	go func() {
		_, err := turns.Take(ctx, scope)
		taken <- err
	}()
	return taken
}

func TestCallsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, whole := lifecycle.NewTurns()
		first, err := turns.Take(background, whole)
		require.NoError(t, err)
		require.False(t, turns.Try(), "a heartbeat waits for nobody")
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
		require.False(t, turns.Try())

		turn, err := turns.Take(background, inner)
		require.NoError(t, err)
		require.Equal(t, inner, turn)
		turn.Give()
		turns.Unnest(inner, time.Second, func() { t.Error("nothing is under way") })
		waits := taking(background, turns, inner) // stands for the scope around it
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
			overdue = true
			call.Give()
		})
		require.True(t, overdue)
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestTheLastTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, whole := lifecycle.NewTurns()
		call, err := turns.Take(background, whole)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		require.False(t, turns.Close(ctx), "a call is under way")
		waits := taking(background, turns, whole)
		synctest.Wait()
		go call.Give()
		if err := <-waits; err == nil { // it was the first in the queue
			whole.Give()
		}
		require.True(t, turns.Close(background))
		require.ErrorIs(t, <-taking(background, turns, whole), lifecycle.ErrEnded)
		require.False(t, turns.Try())
	})
}

// A call that waits while the session ends is told, also if nothing else ends it.
func TestTheEndWakesWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, whole := lifecycle.NewTurns()
		outer, err := turns.Take(background, whole)
		require.NoError(t, err)
		inner := turns.Nest(outer)
		call, err := turns.Take(background, inner)
		require.NoError(t, err)
		waits := taking(background, turns, inner)
		synctest.Wait()
		go turns.Unnest(inner, time.Hour, func() {})
		synctest.Wait()
		call.Give() // to the waiting call, or to Unnest, whoever came first
		synctest.Wait()
		select {
		case err := <-waits:
			require.NoError(t, err)
			inner.Give()
		default: // it waits for the scope around it now
		}
		synctest.Wait()
		outer.Give()
		synctest.Wait()
		select {
		case err := <-waits:
			require.NoError(t, err)
			outer.Give()
		default:
		}
		require.True(t, turns.Close(background))
		synctest.Wait() // a goroutine that still waits fails the test
	})
}
