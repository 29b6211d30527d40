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
	lines     = queue.Lines[string, int]
	admission = queue.Admission[string, int]
)

var (
	background = context.Background()
	errClosed  = errors.New("closed")
)

// newLines are lines in which no session is given back.
func newLines(limit int) *lines {
	return queue.New[string](limit, func(int) { panic("a session is given back") })
}

// caller is one that has called Enter.
type caller struct {
	admitted chan struct{}
	admission
	err error
}

// enter calls Enter, and returns when the caller is in line or has a place.
func enter(ctx context.Context, l *lines, name string, takesSession bool) *caller {
	c := &caller{admitted: make(chan struct{})}
	settled := make(chan struct{})
	settle := sync.OnceFunc(func() { close(settled) })
	go func() {
		c.admission, c.err = l.Enter(ctx, name, queue.Wait{TakesSession: takesSession, Queued: settle})
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

// place waits for a place, and fails the test if something else comes.
func (c *caller) place(t *testing.T) *queue.Place[string, int] {
	t.Helper()
	<-c.admitted
	require.NoError(t, c.err)
	require.False(t, c.Handed)
	return c.Place
}

func TestLinesAdmitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLines(2)
		holds := enter(background, l, "a", true).place(t)
		holds.Granted()
		asks := enter(background, l, "a", true).place(t)
		var waiting []*caller
		for i := range 30 {
			waiting = append(waiting, enter(background, l, "a", i%2 == 0))
		}
		enter(background, l, "b", true).place(t).Leave() // another line is free
		require.Equal(t, 30, holds.Waiting())

		for i, next := range waiting {
			holds.Leave()
			holds.Leave() // harms nobody
			synctest.Wait()
			require.True(t, next.waits(), "it could overtake the one that asks")
			asks.Granted()
			asks.Granted()
			holds, asks = asks, next.place(t)
			require.Equal(t, len(waiting)-i-1, holds.Waiting())
		}
		holds.Leave()
		asks.Leave()
	})
}

// One that asks and gives up makes room, as one that holds does.
func TestAskingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLines(4)
		var asking []*queue.Place[string, int]
		for range 3 {
			asking = append(asking, enter(background, l, "a", true).place(t))
		}
		next := enter(background, l, "a", true)
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
		l := newLines(2)
		blind := func() *queue.Place[string, int] {
			entered, err := l.Enter(background, "a", queue.Wait{Blind: true, Queued: func() {}})
			require.NoError(t, err)
			return entered.Place
		}
		first, second := blind(), blind()
		var third *queue.Place[string, int]
		go func() { third = blind() }()
		synctest.Wait()
		require.Nil(t, third, "both places are taken")
		first.Leave()
		synctest.Wait()
		require.NotNil(t, third)
		second.Leave()
		asks := enter(background, l, "a", true).place(t)
		third.Leave()
		behind := enter(background, l, "a", true)
		synctest.Wait()
		require.True(t, behind.waits(), "it could overtake the one that asks")
		asks.Granted()
		behind.place(t).Leave()
		asks.Leave()
	})
}

func TestPlacesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLines(2)
		var held []*queue.Place[string, int]
		for range 2 {
			place := enter(background, l, "a", true).place(t)
			place.Granted()
			held = append(held, place)
		}
		third := enter(background, l, "a", true)
		synctest.Wait()
		require.True(t, third.waits())
		held[0].Leave()
		third.place(t).Leave()
		held[1].Leave()
	})
}

func TestTryTakesOnlyAFreePlace(t *testing.T) {
	l := newLines(1)
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
		l := newLines(1)
		held := enter(background, l, "a", true).place(t)
		var waiting []*caller
		var cancels []context.CancelFunc
		for range 5 {
			ctx, cancel := context.WithCancel(background)
			waiting, cancels = append(waiting, enter(ctx, l, "a", true)), append(cancels, cancel)
		}
		for _, i := range []int{2, 0, 4} {
			cancels[i]()
			<-waiting[i].admitted
			require.ErrorContains(t, waiting[i].err, "others wait")
		}
		require.Equal(t, 2, held.Waiting())
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

func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLines(1)
		held := enter(background, l, "a", true).place(t)
		hand := func(session int, ok bool) bool {
			return held.HandOver(func() (int, bool) { return session, ok })
		}
		require.False(t, hand(1, true), "nobody waits")
		first, second := enter(background, l, "a", true), enter(background, l, "a", false)
		require.False(t, hand(1, false), "the session is not to be had")
		synctest.Wait()
		require.True(t, first.waits())
		require.True(t, hand(7, true))
		<-first.admitted
		require.NoError(t, first.err)
		require.True(t, first.Handed)
		require.Equal(t, 7, first.Session)
		require.Nil(t, first.Place)
		require.False(t, hand(7, true), "the next takes no session")
		held.Leave()
		require.False(t, hand(7, true), "the place was left")
		second.place(t).Leave()
	})
}

// A caller that was first, and got nothing of use, comes before those that it was before.
func TestFirstAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLines(1)
		held := enter(background, l, "a", true).place(t)
		var order []string
		var group sync.WaitGroup
		wait := func(name string, first bool) {
			queued := make(chan struct{})
			group.Go(func() {
				entered, err := l.Enter(background, "a", queue.Wait{First: first, Queued: func() { close(queued) }})
				if err != nil {
					t.Error(err)
				}
				order = append(order, name)
				entered.Place.Leave()
			})
			<-queued
		}
		wait("second", true) // also of an empty line
		wait("third", false)
		wait("first", true)
		require.Equal(t, 3, held.Waiting())
		held.Leave()
		group.Wait()
		require.Equal(t, []string{"first", "second", "third"}, order)
	})
}

// A panic of what is told of the wait leaves nobody in line, and passes on what was given.
func TestAPanicLeavesTheLine(t *testing.T) {
	for name, meanwhile := range map[string]func(t *testing.T, held *queue.Place[string, int]){
		"in line": func(*testing.T, *queue.Place[string, int]) {},
		"a place": func(_ *testing.T, held *queue.Place[string, int]) { held.Leave() },
		"a session": func(t *testing.T, held *queue.Place[string, int]) {
			require.True(t, held.HandOver(func() (int, bool) { return 7, true }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var givenBack []int
			var held *queue.Place[string, int]
			l := queue.New[string](1, func(session int) {
				givenBack = append(givenBack, session)
				held.Leave()
			})
			held = enter(background, l, "a", true).place(t)
			next := make(chan *caller, 1)
			require.Panics(t, func() {
				_, _ = l.Enter(background, "a", queue.Wait{TakesSession: true, Queued: func() {
					next <- enter(background, l, "a", false)
					meanwhile(t, held)
					panic("boom")
				}})
			})
			if name == "in line" {
				require.Equal(t, 1, held.Waiting())
				held.Leave()
			}
			if name == "a session" {
				require.Equal(t, []int{7}, givenBack)
			} else {
				require.Empty(t, givenBack)
			}
			(<-next).place(t).Leave()
		})
	}
}

func TestCloseEndsAllWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLines(1)
		held := enter(background, l, "a", true).place(t)
		waiting := []*caller{enter(background, l, "a", true), enter(background, l, "a", false)}
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
		require.False(t, held.HandOver(func() (int, bool) { return 1, true }))
		held.Leave()
	})
}

// Places, sessions and cancellations cross at random. Nobody is forgotten, no session has two
// owners, and no line has more places than it should.
func TestNobodyIsForgotten(t *testing.T) {
	const limit, callers, rounds = 3, 64, 200
	l := newLines(limit)
	var inside, sessions, handed, cancelled atomic.Int64
	owned := make([]atomic.Bool, callers*rounds+1)
	places := make([]*queue.Place[string, int], callers*rounds+1) // of the sessions; each has one owner at a time
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for range rounds {
				patience := time.Minute
				if rand.N(3) == 0 {
					patience = rand.N(50 * time.Microsecond)
				}
				ctx, cancel := context.WithTimeout(background, patience)
				entered, err := l.Enter(ctx, "a", queue.Wait{
					TakesSession: rand.N(4) > 0, First: rand.N(8) == 0, Queued: func() {},
				})
				cancel()
				if err != nil {
					cancelled.Add(1)
					continue
				}
				session := entered.Session
				if !entered.Handed {
					session = int(sessions.Add(1))
					places[session] = entered.Place
					if rand.N(2) == 0 {
						entered.Place.Granted()
					}
					if inside.Add(1) > limit {
						t.Error("more sessions than places")
					}
				} else {
					handed.Add(1)
				}
				if !owned[session].CompareAndSwap(false, true) {
					t.Error("a session has two owners")
				}
				runtime.Gosched()
				owned[session].Store(false)
				place := places[session]
				if !place.HandOver(func() (int, bool) { return session, rand.N(8) > 0 }) {
					inside.Add(-1)
					place.Leave()
				}
			}
		})
	}
	group.Wait()
	t.Logf("%d sessions, %d handed over, %d cancelled", sessions.Load(), handed.Load(), cancelled.Load())
	require.Zero(t, inside.Load())
	require.NotZero(t, handed.Load())
	place, ok, err := l.Try("a")
	require.NoError(t, err)
	require.True(t, ok)
	require.Zero(t, place.Waiting())
}
