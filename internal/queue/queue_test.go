package queue_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/queue"
)

type (
	lines = queue.Lines[string]
	place = queue.Place[string]
)

var (
	background = context.Background()
	errClosed  = errors.New("closed")
)

// caller is one that has entered a line.
type caller struct {
	admitted chan struct{}
	given    *place
	err      error
}

// enter enters a line, and returns when the caller waits or has a session.
func enter(ctx context.Context, l *lines, name string) *caller {
	c := &caller{admitted: make(chan struct{}), given: l.Enter(name, false)}
	if !c.given.Waits {
		close(c.admitted)
		return c
	}
	go func() {
		c.err = c.given.Wait(ctx)
		close(c.admitted)
	}()
	return c
}

func (c *caller) waits() bool {
	select {
	case <-c.admitted:
		return false
	default:
		return true
	}
}

// place waits for a place.
func (c *caller) place(t *testing.T) *place {
	t.Helper()
	<-c.admitted
	require.NoError(t, c.err)
	return c.given
}

func TestLinesAdmitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := queue.New[string](background, 2)
		holds := enter(background, l, "a").place(t)
		holds.GoOn(queue.Granted)
		asks := enter(background, l, "a").place(t)
		var waiting []*caller
		for range 30 {
			waiting = append(waiting, enter(background, l, "a"))
		}
		enter(background, l, "b").place(t).GoOn(queue.Left) // another line is free
		require.Equal(t, 30, l.Waiting("a"))

		for i, next := range waiting {
			holds.GoOn(queue.Left)
			holds.GoOn(queue.Left) // harms nobody
			synctest.Wait()
			require.True(t, next.waits(), "it could overtake the one that asks")
			asks.GoOn(queue.Granted)
			asks.GoOn(queue.Granted)
			holds, asks = asks, next.place(t)
			require.Equal(t, len(waiting)-i-1, l.Waiting("a"))
		}
		holds.GoOn(queue.Left)
		asks.GoOn(queue.Left)
	})
}

// One that asks and gives up makes room, as one that holds does.
func TestAskingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := queue.New[string](background, 4)
		var asking []*place
		for range 3 {
			asking = append(asking, enter(background, l, "a").place(t))
		}
		next := enter(background, l, "a")
		synctest.Wait()
		require.True(t, next.waits(), "one place is left for who holds")
		require.Nil(t, l.Enter("a", true), "somebody waits")
		asking[1].GoOn(queue.Left)
		next.place(t).GoOn(queue.Left)
		asking[0].GoOn(queue.Left)
		asking[2].GoOn(queue.Left)
	})
}

// One that asks and holds in a single flight takes the second place, too, and leaves none to one
// that would overtake who asks.
func TestBlindOnesFillThePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := queue.New[string](background, 2)
		blind := func() *place {
			entered := l.Enter("a", false)
			require.NoError(t, entered.Wait(background))
			entered.GoOn(queue.Granted)
			return entered
		}
		first, second := blind(), blind()
		var third *place
		go func() { third = blind() }()
		synctest.Wait()
		require.Nil(t, third, "both places are taken")
		first.GoOn(queue.Left)
		synctest.Wait()
		require.NotNil(t, third)
		second.GoOn(queue.Left)
		asks := enter(background, l, "a").place(t)
		third.GoOn(queue.Left)
		behind := enter(background, l, "a")
		synctest.Wait()
		require.True(t, behind.waits(), "it could overtake the one that asks")
		asks.GoOn(queue.Granted)
		behind.place(t).GoOn(queue.Left)
		asks.GoOn(queue.Left)
	})
}

func TestTryTakesOnlyAFreePlace(t *testing.T) {
	l := queue.New[string](background, 1)
	place := l.Enter("a", true)
	require.Nil(t, l.Enter("a", true))
	place.GoOn(queue.Left)
	place = l.Enter("a", true)
	require.NotNil(t, place)
	place.GoOn(queue.Left)
}

// A caller whose context ends leaves the line, wherever it stands, and nobody else is disturbed.
func TestCancelledCallersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := queue.New[string](background, 1)
		held := enter(background, l, "a").place(t)
		var waiting []*caller
		var cancels []context.CancelFunc
		for range 5 {
			ctx, cancel := context.WithCancel(background)
			waiting, cancels = append(waiting, enter(ctx, l, "a")), append(cancels, cancel)
		}
		for _, i := range []int{2, 0, 4} {
			cancels[i]()
			<-waiting[i].admitted
			require.ErrorContains(t, waiting[i].err, "others wait")
		}
		require.Equal(t, 2, l.Waiting("a"))
		held.GoOn(queue.Left)
		next := waiting[1].place(t)
		synctest.Wait()
		require.True(t, waiting[3].waits())
		next.GoOn(queue.Left)
		waiting[3].place(t).GoOn(queue.Left)
		cancels[1]()
		cancels[3]()
	})
}

// A caller may leave before it waits, also when it was admitted meanwhile: its Tracer may panic.
func TestLeavesWithoutWaiting(t *testing.T) {
	for name, meanwhile := range map[string]func(held *place){
		"in line":      func(*place) {},
		"with session": func(held *place) { held.GoOn(queue.Left) },
	} {
		t.Run(name, func(t *testing.T) {
			l := queue.New[string](background, 1)
			held := enter(background, l, "a").place(t)
			leaves := l.Enter("a", false)
			require.True(t, leaves.Waits)
			next := enter(background, l, "a")
			meanwhile(held)
			require.Equal(t, map[bool]int{false: 2, true: 1}[name == "with session"], l.Waiting("a"))
			leaves.GoOn(queue.Left)
			leaves.GoOn(queue.Left)
			held.GoOn(queue.Left)
			next.place(t).GoOn(queue.Left)
		})
	}
}

func TestCloseEndsAllWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closing, closeAll := context.WithCancelCause(background)
		l := queue.New[string](closing, 1)
		held := enter(background, l, "a").place(t)
		waiting := []*caller{enter(background, l, "a"), enter(background, l, "a")}
		closeAll(errClosed)
		for _, c := range waiting {
			<-c.admitted
			require.Equal(t, errClosed, c.err)
		}
		late := enter(background, l, "a")
		<-late.admitted
		require.Equal(t, errClosed, late.err)
		held.GoOn(queue.Left)
	})
}

// Places and cancellations cross at random. Nobody is forgotten, and no line has more places than
// it should.
func TestNobodyIsForgotten(t *testing.T) {
	const limit, callers, rounds = 3, 64, 200
	l := queue.New[string](background, limit)
	var inside, served, cancelled atomic.Int64
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for range rounds {
				patience := time.Minute
				if rand.N(3) == 0 {
					patience = rand.N(50 * time.Microsecond)
				}
				ctx, cancel := context.WithTimeout(background, patience)
				entered := l.Enter("a", false)
				err := entered.Wait(ctx)
				cancel()
				if err != nil {
					cancelled.Add(1)
					continue
				}
				served.Add(1)
				if rand.N(2) == 0 {
					entered.GoOn(queue.Granted)
				}
				if inside.Add(1) > limit {
					t.Error("more callers than places")
				}
				runtime.Gosched()
				inside.Add(-1)
				entered.GoOn(queue.Left)
			}
		})
	}
	group.Wait()
	t.Logf("%d served, %d cancelled", served.Load(), cancelled.Load())
	require.Zero(t, inside.Load())
	require.EqualValues(t, callers*rounds, served.Load()+cancelled.Load())
	require.NotNil(t, l.Enter("a", true))
	require.Zero(t, l.Waiting("a"))
}
