package engines

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
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
	f, proxy := testbed.Proxied(t, e, c, 4)
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
		count("do", func() error { return held.Do(background, idle[Tx]) })
		count("extend", func() error { _, err := held.Extend(background, time.Minute); return err })
		count("release", func() error { return held.Release(background) })
		count("take", func() error { _, err := claim.Take(background, "me", time.Minute); return err })
		count("state", func() error { _, err := claim.State(background); return err })
	}
	require.Equal(t, map[string]int{
		"again": take, "miss": take, "do": do, "extend": end, "release": end, "take": take, "state": state,
	}, counts, c.Name)
}
