package lookout_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/lookout"
)

// table is claims, and when they end; it counts the looks at them. Those that are locked are not
// free, whoever asks.
type table struct {
	mu     sync.Mutex
	ends   map[byte]time.Time
	locked map[byte]bool
	looks  []time.Time
}

func (c *table) sent() []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.looks
}

func want(claim byte, by string) lookout.Want {
	return lookout.Want{Claim: string([]byte{claim}), By: by}
}

func (c *table) look(_ context.Context, wants []lookout.Want) (free []lookout.Want) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks = append(c.looks, time.Now())
	for _, want := range wants {
		if time.Until(c.ends[want.Claim[0]]) <= 0 && !c.locked[want.Claim[0]] {
			free = append(free, want)
		}
	}
	return free
}

// wait waits for a claim in a goroutine, which another has for as long as left says, and says when
// it has tried, which it does once more.
func wait(o *lookout.Lookout, want lookout.Want, left time.Duration, try func()) <-chan time.Time {
	tried := make(chan time.Time, 1)
	missed := false
	go func() {
		defer close(tried)
		o.Wait(context.Background(), want, func() (time.Duration, bool) {
			if !missed {
				missed = true
				return left, true
			}
			tried <- time.Now()
			try()
			return 0, false
		})
	}()
	return tried
}

func takes() {}

// One look a second is for all who wait, and one comes at the end of the claim that ends first.
// When nobody waits nobody looks, and it begins again.
func TestLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		at := func(after time.Duration) time.Time { return begun.Add(after) }
		c := table{ends: map[byte]time.Time{'a': at(2500 * time.Millisecond), 'b': at(2510 * time.Millisecond)}}
		o := lookout.New(context.Background(), c.look)
		a := wait(o, want('a', "me"), 2500*time.Millisecond, takes)
		b := wait(o, want('b', "me"), 2510*time.Millisecond, takes)
		require.Equal(t, at(2500*time.Millisecond), <-a)
		require.WithinDuration(t, at(2625*time.Millisecond), <-b, 0, "two looks are apart")
		require.Len(t, c.sent(), 4)
		require.Equal(t, at(time.Second), c.sent()[0])
		time.Sleep(10 * time.Second)
		require.Len(t, c.sent(), 4, "nobody waits")
		woken := <-wait(o, want('c', "me"), 200*time.Millisecond, takes)
		require.WithinDuration(t, time.Now(), woken, 200*time.Millisecond)
		time.Sleep(2 * time.Second)
	})
}

// Of those who want the same claim, one takes it, and the others who say the same name. A claim
// that is locked keeps nobody from another, and a thousand who wait for it send one look a second.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := table{locked: map[byte]bool{}}
		for claim := range byte(100) {
			c.locked[claim] = true
		}
		o := lookout.New(context.Background(), c.look)
		var late []<-chan time.Time
		for claim := range byte(100) {
			for _, by := range []string{"me", "me", "you"} {
				late = append(late, wait(o, want(claim, by), 0, takes))
			}
		}
		synctest.Wait()
		time.Sleep(10 * time.Second)
		require.LessOrEqual(t, len(c.sent()), 11)
		require.WithinDuration(t, time.Now(), <-wait(o, want('x', "me"), 0, takes), 1200*time.Millisecond)
		begun := time.Now()
		c.mu.Lock()
		clear(c.locked)
		c.mu.Unlock()
		for _, turn := range late {
			require.WithinDuration(t, begun, <-turn, 4*time.Second)
		}
		time.Sleep(2 * time.Second)
	})
}

// What takes nothing is at most ten statements a second. One that is stuck keeps the others waiting
// for two seconds.
func TestMisses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := table{}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		o := lookout.New(ctx, c.look)
		var tried atomic.Int32
		for claim := range byte(20) {
			go func() {
				o.Wait(ctx, want(claim, "me"), func() (time.Duration, bool) {
					tried.Add(1)
					return 0, true
				})
			}()
		}
		<-ctx.Done()
		synctest.Wait()
		require.Positive(t, tried.Load())
		require.LessOrEqual(t, len(c.sent())+int(tried.Load()), 200)

		o = lookout.New(context.Background(), c.look)
		over := make(chan struct{})
		<-wait(o, want('a', "me"), 0, func() { <-over })
		begun := time.Now()
		require.WithinDuration(t, begun.Add(2*time.Second), <-wait(o, want('b', "me"), 0, takes), 500*time.Millisecond)
		close(over)
		time.Sleep(5 * time.Second)
	})
}

// Close ends all waits, and so does the end of a context.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closing, end := context.WithCancel(context.Background())
		c := table{locked: map[byte]bool{'a': true}}
		o := lookout.New(closing, c.look)
		tried := wait(o, want('a', "me"), 0, takes)
		tries := 0
		misses := func() (time.Duration, bool) {
			tries++
			return time.Hour, true
		}
		ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
		defer cancel()
		o.Wait(ctx, want('a', "you"), misses)
		require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
		time.AfterFunc(10*time.Millisecond, end)
		o.Wait(context.Background(), want('a', "you"), misses)
		require.Error(t, closing.Err())
		require.Equal(t, 2, tries)
		_, held := <-tried
		require.False(t, held)
		time.Sleep(10 * time.Second)
		require.LessOrEqual(t, len(c.sent()), 4)
	})
}

// A caller whose try panics is gone, and nobody looks for it.
func TestPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := table{}
		o := lookout.New(context.Background(), c.look)
		tries := 0
		require.PanicsWithValue(t, "a client library", func() {
			o.Wait(context.Background(), want('a', "me"), func() (time.Duration, bool) {
				if tries++; tries > 1 {
					panic("a client library")
				}
				return 0, true
			})
		})
		time.Sleep(10 * time.Second)
		require.Len(t, c.sent(), 1)
		require.WithinDuration(t, time.Now(), <-wait(o, want('b', "me"), 0, takes), 1200*time.Millisecond)
		time.Sleep(2 * time.Second)
	})
}
