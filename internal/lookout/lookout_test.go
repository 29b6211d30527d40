package lookout_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/lookout"
)

// table is claims and when they end. It counts the looks at it.
type table struct {
	ends    map[string]time.Time
	looks   []time.Time
	unknown bool
}

func (c *table) look(_ context.Context, claims []string) (left map[string]time.Duration, known bool) {
	c.looks = append(c.looks, time.Now())
	left = map[string]time.Duration{}
	for _, claim := range claims {
		if end, held := c.ends[claim]; held {
			left[claim] = time.Until(end)
		}
	}
	return left, !c.unknown
}

// wait waits for a claim in a goroutine, and gives the turn back at once.
func wait(o *lookout.Lookout[string], claim string, again time.Duration, own bool) <-chan time.Time {
	woken := make(chan time.Time, 1)
	go func() {
		release, err := o.Wait(context.Background(), claim, again, own)
		if err != nil {
			close(woken)
			return
		}
		woken <- time.Now()
		release()
	}()
	return woken
}

// One look a second is for all who wait, and one comes at the end of the claim that ends first. One
// caller of each claim is woken at a time. When nobody waits nobody looks, and it begins again.
func TestLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		at := func(after time.Duration) time.Time { return begun.Add(after) }
		c := table{ends: map[string]time.Time{"a": at(2500 * time.Millisecond), "b": at(2510 * time.Millisecond)}}
		o := lookout.New(context.Background(), c.look)
		a, b := wait(o, "a", time.Hour, false), wait(o, "b", time.Hour, false)
		own := wait(o, "a", 40*time.Millisecond, true)
		require.Equal(t, at(40*time.Millisecond), <-own, "whose claim it is waits for no look")
		synctest.Wait()
		require.Equal(t, 1, o.Count("a"))
		require.Equal(t, at(2500*time.Millisecond), <-a)
		require.Equal(t, at(2600*time.Millisecond), <-b, "two looks are apart")
		require.Equal(t, []time.Time{
			at(time.Second), at(2 * time.Second), at(2500 * time.Millisecond), at(2600 * time.Millisecond),
		}, c.looks)
		time.Sleep(10 * time.Second)
		require.Len(t, c.looks, 4, "nobody waits")
		require.Equal(t, time.Now().Add(50*time.Millisecond), <-wait(o, "c", 50*time.Millisecond, false))
	})
}

// Wake lets one of two try, and the next look the other. That one waits for its turn, for two
// seconds at most.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := lookout.New(context.Background(), (&table{}).look)
		begun := time.Now()
		first := make(chan func(), 1)
		go func() {
			release, _ := o.Wait(context.Background(), "a", time.Hour, false)
			first <- release
		}()
		synctest.Wait()
		second := wait(o, "a", time.Hour, false)
		synctest.Wait()
		o.Wake("a")
		release := <-first
		require.Equal(t, begun, time.Now())
		require.Equal(t, begun.Add(2*time.Second), <-second)
		release()
		time.Sleep(5 * time.Second)
		require.Equal(t, time.Now().Add(time.Second), <-wait(o, "a", time.Second, false))
	})
}

// While the server is silent nobody is woken, and Close ends all waits.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := errors.New("closed")
		closing, end := context.WithCancelCause(context.Background())
		c := table{unknown: true}
		o := lookout.New(closing, c.look)
		woken := wait(o, "a", 0, false)
		synctest.Wait()
		_, err := o.Wait(func() context.Context {
			ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
			t.Cleanup(cancel)
			return ctx
		}(), "a", 0, false)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, c.looks, 3)
		require.Empty(t, woken)
		go func() {
			time.Sleep(10 * time.Millisecond)
			end(closed)
		}()
		_, err = o.Wait(context.Background(), "a", time.Hour, false)
		require.ErrorIs(t, err, closed)
		_, held := <-woken
		require.False(t, held)
		time.Sleep(10 * time.Second)
		require.Len(t, c.looks, 3)
	})
}
