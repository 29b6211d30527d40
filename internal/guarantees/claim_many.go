package guarantees

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/guarantees/testbed"
	"github.com/txlock/txlock/internal/wire"
)

// ClaimsLate shows that callers who wait for claims whose holders are late send few statements,
// whoever they say they are, and keep nobody from another claim.
func ClaimsLate[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const late, callers = 8, 40
	proxy, err := wire.Listen(e.Address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	holders := testbed.NewSizedFixture(t, e, c, late+2, e.Address())
	f := testbed.NewSizedFixture(t, e, c, 4, proxy.Addr())
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	var waiting, working errgroup.Group
	over, inside := make(chan struct{}), make(chan struct{}, late)
	for i := range late {
		key := f.OnceKey(fmt.Sprint("late", i), "claim:")
		held, err := holders.Locks.Claim(key).TryTake(background, "holder", time.Second)
		require.NoError(t, err)
		working.Go(func() error {
			return held.Do(background, func(context.Context, Tx) error {
				inside <- struct{}{}
				<-over
				return nil
			})
		})
		<-inside
		for n := range callers {
			by := []string{"holder", fmt.Sprint("caller ", n)}[n%2]
			waiting.Go(func() error {
				if _, err := f.Locks.Claim(key).Take(ctx, by, time.Minute); err == nil {
					return fmt.Errorf("%s has the claim", by)
				}
				return nil
			})
		}
	}
	time.Sleep(1500 * time.Millisecond) // each has tried, and all claims are over
	other := f.OnceKey("other", "claim:")
	first, err := f.Locks.Claim(other).TryTake(background, "first", time.Minute)
	require.NoError(t, err)
	begun, before := time.Now(), proxy.Bursts()
	taken := make(chan error, 1)
	go func() {
		_, err := f.Locks.Claim(other).Take(background, "second", time.Minute)
		taken <- err
	}()
	time.Sleep(2 * time.Second)
	require.NoError(t, first.Release(background))
	require.NoError(t, testbed.Receive(t, taken))
	took := time.Since(begun)
	require.Less(t, took, 7*time.Second, "an unrelated claim")
	// Ten, and what a busy machine interrupts, on further connections.
	bound := 40 * int(1+took.Seconds())
	if e.Postgres || c.Name != "mysql.Open" {
		bound *= 8 // trips of a statement, where each has its own
	}
	require.Less(t, proxy.Bursts()-before, bound)
	cancel()
	require.NoError(t, waiting.Wait())
	close(over)
	require.NoError(t, working.Wait())
}

// ClaimsBounded shows that Within bounds a whole call, also at a full pool, and that a claim does
// not depend on the slots of keys.
func ClaimsBounded[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, _ := testbed.NewFixtureWithTable(t, e, c, txlock.WithSlots(1))
	require.NoError(t, f.Locks.Install(background))
	first, err := f.Locks.Claim("first").TryTake(background, "me", time.Minute)
	require.NoError(t, err)
	lock, err := f.Locks.Mutex("any").Lock(background)
	require.NoError(t, err)
	require.NoError(t, first.Do(background, func(context.Context, Tx) error {
		_, err := f.Locks.Claim("second").TryTake(background, "me", time.Minute)
		require.NoError(t, err, "all keys have one slot")
		return nil
	}))
	require.NoError(t, lock.Unlock(background))

	require.NoError(t, f.Locks.Mutex("any").Do(background, func(ctx context.Context, _ Tx) error {
		_, err := f.Locks.Claim("first").TryTake(ctx, "you", time.Minute)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		brief, cancel := context.WithTimeout(background, 5*time.Second)
		defer cancel()
		_, err = first.Extend(brief, time.Minute)
		require.NoError(t, err, "a miss locks nothing")
		return nil
	}))

	full := testbed.NewSizedFixture(t, e, c, 1, e.Address())
	claim := full.Locks.Claim(full.OnceKey("full", "claim:")).Within(time.Second)
	lock, err = full.Locks.Mutex(full.Key("full")).Lock(background)
	require.NoError(t, err)
	for name, call := range map[string]func() error{
		"TryTake": func() error { _, err := claim.TryTake(background, "me", time.Minute); return err },
		"Take":    func() error { _, err := claim.Take(background, "me", time.Minute); return err },
		"State":   func() error { _, err := claim.State(background); return err },
	} {
		begun := time.Now()
		err := call()
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
		require.ErrorIs(t, err, txlock.ErrNotAcquired, name)
		require.Less(t, time.Since(begun), 1600*time.Millisecond, name)
	}
	require.NoError(t, lock.Unlock(background))
}
