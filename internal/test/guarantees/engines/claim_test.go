package engines

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/tier"
	"github.com/txlock/txlock/internal/test/wire"
)

// What docs/claims.md says of round trips.
func TestClaimTrips(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			if e.Postgres {
				for _, c := range testbed.PostgresPgx {
					claimTrips(t, e, c, 1, 2, 2, 1)
				}
				claimTrips(t, e, testbed.PostgresSQL[0], 1, 4, 4, 1)
				return
			}
			claimTrips(t, e, testbed.MySQLSQL[0], 5, 9, 10, 1) // one statement after the other
			claimTrips(t, e, testbed.MySQLSQL[1], 1, 2, 2, 1)
		})
	}
}

func claimTrips[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], take, do, end, state int) {
	proxy, err := wire.Listen(e.Address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	f := testbed.NewSizedFixture(t, e, c, 4, proxy.Addr())
	claim := f.Locks.Claim(f.OnceKey("a", "claim:"))
	counts := map[string]int{}
	count := func(what string, call func() error) {
		before := proxy.Bursts()
		require.NoError(t, call())
		if n := proxy.Bursts() - before; counts[what] == 0 || n < counts[what] {
			counts[what] = n
		}
	}
	for range 8 {
		held, err := claim.TryTake(background, "me", time.Minute)
		require.NoError(t, err)
		count("again", func() error { _, err := claim.TryTake(background, "me", time.Minute); return err })
		count("miss", func() error {
			_, err := claim.TryTake(background, "other", time.Minute)
			require.Error(t, err)
			return nil
		})
		count("do", func() error { return held.Do(background, func(context.Context, Tx) error { return nil }) })
		count("extend", func() error { _, err := held.Extend(background, time.Minute); return err })
		count("release", func() error { return held.Release(background) })
		count("take", func() error { _, err := claim.Take(background, "me", time.Minute); return err })
		count("state", func() error { _, err := claim.State(background); return err })
	}
	require.Equal(t, map[string]int{
		"again": take, "miss": take, "do": do, "extend": end, "release": end, "take": take, "state": state,
	}, counts, c.Name)
}

// Many claims that are held, and many callers that wait for them, take two connections at most, and
// ten statements a second.
func TestManyClaims(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			if e.Postgres {
				manyClaims(t, e, testbed.PgxOpened())
			} else {
				manyClaims(t, e, testbed.MySQLSQL[1])
			}
		})
	}
}

func manyClaims[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	many := tier.Pick(100, 300, 10_000)
	proxy, err := wire.Listen(e.Address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	f := testbed.NewSizedFixture(t, e, c, 2, proxy.Addr())
	claims := make([]*txlock.Claim[Tx], many)
	held := make([]*txlock.Claimed[Tx], many)
	for i := range claims {
		claims[i] = f.Locks.Claim(f.Label + " " + strconv.Itoa(i))
		held[i], err = claims[i].TryTake(background, "first", time.Hour)
		require.NoError(t, err)
	}
	var waiters errgroup.Group
	for _, claim := range claims {
		waiters.Go(func() error {
			_, err := claim.Take(background, "second", time.Hour)
			return err
		})
	}
	sent := 0
	eventually.Every(t, "each has tried", time.Second, func() bool {
		before := sent
		sent = proxy.Bursts()
		return sent-before <= 2*10
	})
	if f.Pool.Open != nil {
		require.LessOrEqual(t, f.Pool.Open(), 2)
	}
	for _, h := range held {
		require.NoError(t, h.Release(background))
	}
	require.NoError(t, waiters.Wait())
}
