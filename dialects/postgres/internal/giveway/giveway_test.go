package giveway

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
)

// asker stands for the server: it says whether somebody waits for a snapshot, as the test sets it.
type asker struct {
	Waits
	mu    sync.Mutex
	since time.Duration
	some  bool
	looks int
}

func newAsker() *asker {
	a := &asker{}
	a.all = make(map[*Wait]struct{})
	a.look = func(context.Context, *pgx.Conn) (time.Duration, bool, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.looks++
		return a.since, a.some, nil
	}
	return a
}

// says has the server say that somebody has been waiting for so long.
func (a *asker) says(since time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since, a.some = since, true
}

func (a *asker) looked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.looks
}

// enterFor enters a wait whose interrupts are counted.
func (a *asker) enterFor(lease time.Duration) (w *Wait, interrupts *atomic.Int32) {
	interrupts = &atomic.Int32{}
	w = a.Enter(dialects.Request{Lease: lease}, client.Line{
		Interrupt: func(context.Context) error {
			interrupts.Add(1)
			return nil
		},
	})
	return w, interrupts
}

func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestAWaitKeepsItsPlaceAsLongAsItHarmsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker()
		w, interrupts := a.enterFor(30 * time.Second)
		after(maxWait - time.Second)
		require.Zero(t, interrupts.Load())
		require.Positive(t, a.looked())
		after(time.Second + lookEvery)
		require.Positive(t, interrupts.Load(), "it is too old for VACUUM")
		require.True(t, a.Leave(w))
	})
}

func TestAWaitWithAShortLeaseGivesWayEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker()
		w, interrupts := a.enterFor(2 * time.Second)
		after(leasesToWait*2*time.Second + lookEvery)
		require.Positive(t, interrupts.Load())
		a.Leave(w)
	})
}

// VACUUM is to be less than two minutes behind an election, and five behind anybody else who waits.
func TestHowLongAWaitKeepsItsSnapshot(t *testing.T) {
	const lease = 30 * time.Second
	slot := dialects.Request{Ours: true, Slots: 64, Lease: lease}
	permit := dialects.Request{Ours: true, AnyOne: "hash", Lease: lease}
	seat := dialects.Request{Ours: true, Lease: lease}
	rows := dialects.Request{Lease: lease}
	for _, request := range []dialects.Request{slot, permit, rows} {
		require.Equal(t, 150*time.Second, maxWaitOf(request))
	}
	require.Equal(t, 45*time.Second, maxWaitOf(seat))
	slot.Lease, seat.Lease = 4*time.Second, 4*time.Second
	require.Equal(t, 20*time.Second, maxWaitOf(slot))
	require.Equal(t, 20*time.Second, maxWaitOf(seat))
}

// Who waits for snapshots waits for those that are older than its own wait.
func TestWaitsGiveWayToWhoCameLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker()
		old, oldInterrupts := a.enterFor(30 * time.Second)
		after(2 * lookEvery)
		young, youngInterrupts := a.enterFor(30 * time.Second)
		a.says(2 * lookEvery)
		after(lookEvery)
		require.Positive(t, oldInterrupts.Load())
		require.Zero(t, youngInterrupts.Load())
		require.True(t, a.Leave(old))
		require.False(t, a.Leave(young))

		interrupts := oldInterrupts.Load()
		after(time.Minute)
		require.Equal(t, interrupts, oldInterrupts.Load(), "none comes behind the end of the wait")
	})
}

func TestNobodyIsAskedForWaitsThatAreSoonOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker()
		for range 1000 {
			w, _ := a.enterFor(30 * time.Second)
			after(lookEvery / 10)
			require.False(t, a.Leave(w))
		}
		require.Zero(t, a.looked())
		require.Nil(t, a.Enter(dialects.Request{Try: true}, client.Line{}), "a try does not wait")
		require.False(t, a.Leave(nil))
		after(time.Minute) // the timer has stopped
		a.Waits.mu.Lock()
		defer a.Waits.mu.Unlock()
		require.False(t, a.looking)
		require.Empty(t, a.all)
	})
}
