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

// caller is one that has called Enter.
type caller struct {
	admitted chan struct{}
	given    *place
	err      error
}

// enter calls Enter, and returns when the caller is in line or has a place.
func enter(ctx context.Context, l *lines, name string) *caller {
	c := &caller{admitted: make(chan struct{})}
	settled := make(chan struct{})
	settle := sync.OnceFunc(func() { close(settled) })
	go func() {
		c.given, c.err = l.Enter(ctx, name, queue.Wait{Queued: settle})
		close(c.admitted)
		settle()
	}()
	<-settled
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
		l := queue.New[string](2)
		holds := enter(background, l, "a").place(t)
		holds.Granted()
		asks := enter(background, l, "a").place(t)
		var waiting []*caller
		for range 30 {
			waiting = append(waiting, enter(background, l, "a"))
		}
		enter(background, l, "b").place(t).Leave() // another line is free
		require.Equal(t, 30, l.Waiting("a"))

		for i, next := range waiting {
			holds.Leave()
			holds.Leave() // harms nobody
			synctest.Wait()
			require.True(t, next.waits(), "it could overtake the one that asks")
			asks.Granted()
			asks.Granted()
			holds, asks = asks, next.place(t)
			require.Equal(t, len(waiting)-i-1, l.Waiting("a"))
		}
		holds.Leave()
		asks.Leave()
	})
}

// One that asks and gives up makes room, as one that holds does.
func TestAskingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := queue.New[string](4)
		var asking []*place
		for range 3 {
			asking = append(asking, enter(background, l, "a").place(t))
		}
		next := enter(background, l, "a")
		synctest.Wait()
		require.True(t, next.waits(), "one place is left for who holds")
		_, ok, _ := l.Try("a")
		require.False(t, ok, "somebody waits")
		asking[1].Leave()
		next.place(t).Leave()
		asking[0].Leave()
		asking[2].Leave()
	})
}

// One that asks and holds in a single flight takes the second place, too, and leaves none to one
// that would overtake who asks.
func TestBlindOnesFillThePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := queue.New[string](2)
		blind := func() *place {
			entered, err := l.Enter(background, "a", queue.Wait{Blind: true, Queued: func() {}})
			require.NoError(t, err)
			return entered
		}
		first, second := blind(), blind()
		var third *place
		go func() { third = blind() }()
		synctest.Wait()
		require.Nil(t, third, "both places are taken")
		first.Leave()
		synctest.Wait()
		require.NotNil(t, third)
		second.Leave()
		asks := enter(background, l, "a").place(t)
		third.Leave()
		behind := enter(background, l, "a")
		synctest.Wait()
		require.True(t, behind.waits(), "it could overtake the one that asks")
		asks.Granted()
		behind.place(t).Leave()
		asks.Leave()
	})
}

func TestPlacesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := queue.New[string](2)
		var held []*place
		for range 2 {
			place := enter(background, l, "a").place(t)
			place.Granted()
			held = append(held, place)
		}
		third := enter(background, l, "a")
		synctest.Wait()
		require.True(t, third.waits())
		held[0].Leave()
		third.place(t).Leave()
		held[1].Leave()
	})
}

func TestTryTakesOnlyAFreePlace(t *testing.T) {
	l := queue.New[string](1)
	place, ok, err := l.Try("a")
	require.NoError(t, err)
	require.True(t, ok)
	_, ok, err = l.Try("a")
	require.NoError(t, err)
	require.False(t, ok)
	place.Leave()
	place, ok, _ = l.Try("a")
	require.True(t, ok)
	place.Leave()
}

// A caller whose context ends leaves the line, wherever it stands, and nobody else is disturbed.
func TestCancelledCallersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := queue.New[string](1)
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
		held.Leave()
		next := waiting[1].place(t)
		synctest.Wait()
		require.True(t, waiting[3].waits())
		next.Leave()
		waiting[3].place(t).Leave()
		cancels[1]()
		cancels[3]()
	})
}

// A panic of what is told of the wait leaves nobody in line, and passes on what was given.
func TestAPanicLeavesTheLine(t *testing.T) {
	for name, meanwhile := range map[string]func(held *place){
		"in line": func(*place) {},
		"a place": func(held *place) { held.Leave() },
	} {
		t.Run(name, func(t *testing.T) {
			l := queue.New[string](1)
			held := enter(background, l, "a").place(t)
			next := make(chan *caller, 1)
			require.Panics(t, func() {
				_, _ = l.Enter(background, "a", queue.Wait{Queued: func() {
					next <- enter(background, l, "a")
					meanwhile(held)
					panic("boom")
				}})
			})
			if name == "in line" {
				require.Equal(t, 1, l.Waiting("a"))
				held.Leave()
			}
			(<-next).place(t).Leave()
		})
	}
}

func TestCloseEndsAllWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := queue.New[string](1)
		held := enter(background, l, "a").place(t)
		waiting := []*caller{enter(background, l, "a"), enter(background, l, "a")}
		l.Close(errClosed)
		l.Close(errors.New("a second Close changes nothing"))
		for _, c := range waiting {
			<-c.admitted
			require.Equal(t, errClosed, c.err)
		}
		_, err := l.Enter(background, "b", queue.Wait{})
		require.Equal(t, errClosed, err)
		_, _, err = l.Try("b")
		require.Equal(t, errClosed, err)
		held.Leave()
	})
}

// Places and cancellations cross at random. Nobody is forgotten, and no line has more places than
// it should.
func TestNobodyIsForgotten(t *testing.T) {
	const limit, callers, rounds = 3, 64, 200
	l := queue.New[string](limit)
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
				entered, err := l.Enter(ctx, "a", queue.Wait{Blind: rand.N(4) == 0, Queued: func() {}})
				cancel()
				if err != nil {
					cancelled.Add(1)
					continue
				}
				served.Add(1)
				if rand.N(2) == 0 {
					entered.Granted()
				}
				if inside.Add(1) > limit {
					t.Error("more callers than places")
				}
				runtime.Gosched()
				inside.Add(-1)
				entered.Leave()
			}
		})
	}
	group.Wait()
	t.Logf("%d served, %d cancelled", served.Load(), cancelled.Load())
	require.Zero(t, inside.Load())
	require.EqualValues(t, callers*rounds, served.Load()+cancelled.Load())
	_, ok, err := l.Try("a")
	require.NoError(t, err)
	require.True(t, ok)
	require.Zero(t, l.Waiting("a"))
}
