package servers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/tier"
)

// startPair starts a pair that ends with the test.
func startPair(t *testing.T, kind Kind, synchronous bool) *Pair {
	t.Helper()
	pair, err := StartPair(context.Background(), kind, synchronous)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pair.Stop()) })
	return pair
}

// arrived waits until the standby has n rows.
func arrived(t *testing.T, pair *Pair, n int) {
	t.Helper()
	copied := open(t, pair.Standby())
	require.Eventually(t, func() bool {
		var rows int
		return copied.QueryRow("SELECT COUNT(*) FROM t").Scan(&rows) == nil && rows == n
	}, time.Minute, 10*time.Millisecond)
}

func TestPair(t *testing.T) {
	if !tier.Full() { // TestFailover has pairs
		return
	}
	t.Parallel()
	for _, kind := range Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			pair := startPair(t, kind, true)
			do(t, open(t, pair.Primary()), "CREATE TABLE t (n INT PRIMARY KEY)")
			t.Run("the standby has what the primary writes", func(t *testing.T) { standbyFollows(t, pair) })
			t.Run("they change places", func(t *testing.T) { placesChange(t, pair) })
			t.Run("what the standby never got is discarded", func(t *testing.T) { discarded(t, pair) })
		})
	}
}

func TestAsynchronousPair(t *testing.T) {
	if !tier.Full() { // as TestPair
		return
	}
	t.Parallel()
	for _, kind := range []Kind{Postgres(), MariaDB} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			pair := startPair(t, kind, false)
			do(t, open(t, pair.Primary()), "CREATE TABLE t (n INT PRIMARY KEY)")
			standbyFollows(t, pair)
		})
	}
}

// standbyFollows: a commit waits for the standby if the pair is synchronous, and only then.
func standbyFollows(t *testing.T, pair *Pair) {
	written := open(t, pair.Primary())
	arrived(t, pair, 0)
	if pair.Kind != MariaDB { // root may write there
		_, err := open(t, pair.Standby()).Exec("INSERT INTO t VALUES (2)")
		require.ErrorContains(t, err, "read-only")
	}
	require.NoError(t, pair.Standby().Pause())
	late := make(chan error, 1)
	go func() {
		_, err := written.Exec("INSERT INTO t VALUES (1)")
		late <- err
	}()
	if pair.Synchronous {
		waitsForStandby(t, pair)
		require.Empty(t, late)
	} else {
		require.NoError(t, <-late)
	}
	require.NoError(t, pair.Standby().Continue())
	if pair.Synchronous {
		require.NoError(t, <-late)
	}
	arrived(t, pair, 1)
}

// waitsForStandby returns when a commit waits for the standby.
func waitsForStandby(t *testing.T, pair *Pair) {
	t.Helper()
	query := "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for semi-sync ACK%'"
	if pair.Kind.Postgres() {
		query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
	}
	asked := open(t, pair.Primary())
	eventually.True(t, "the commit waits for the standby", func() bool { return number(t, asked, query) == 1 })
}

func placesChange(t *testing.T, pair *Pair) {
	ctx := context.Background()
	for n, way := range []Way{Killed, Planned, Planned, Killed} {
		former, next := pair.Primary(), pair.Standby()
		do(t, open(t, former), fmt.Sprintf("INSERT INTO t VALUES (%d)", n+2))
		require.NoError(t, pair.Switch(ctx, way), "switch %d, %v", n, way)
		require.Equal(t, []*Server{next, former}, []*Server{pair.Primary(), pair.Standby()})
		require.Equal(t, n+2, number(t, open(t, next), "SELECT COUNT(*) FROM t"), "what was acknowledged is there")
		arrived(t, pair, n+2)
		for server, leads := range map[*Server]bool{next: true, former: false} {
			answer, err := Leads(ctx, pair, server)
			require.NoError(t, err)
			require.Equal(t, leads, answer)
		}
	}
}

// A commit that the standby never got is not acknowledged, but the primary has it in its log. It is
// gone when the primary comes back after the standby has taken over.
func discarded(t *testing.T, pair *Pair) {
	ctx := context.Background()
	written := open(t, pair.Primary())
	do(t, written, "DELETE FROM t", "INSERT INTO t VALUES (1)")
	arrived(t, pair, 1)
	require.NoError(t, pair.Standby().Pause())
	late := make(chan error, 1)
	go func() {
		_, err := written.Exec("INSERT INTO t VALUES (2)")
		late <- err
	}()
	waitsForStandby(t, pair)
	require.NoError(t, pair.Primary().Kill())
	require.Error(t, <-late, "not acknowledged")
	// The row may still be in the standby's socket. A standby that restarts has lost it.
	require.NoError(t, pair.Standby().Kill())
	require.NoError(t, pair.Standby().Restart(ctx))
	require.NoError(t, pair.Promote(ctx))
	do(t, open(t, pair.Primary()), "INSERT INTO t VALUES (3)")
	require.NoError(t, pair.Rejoin(ctx))
	arrived(t, pair, 2)
	require.Equal(t, 4, number(t, open(t, pair.Standby()), "SELECT SUM(n) FROM t"), "1 and 3")
	require.NoError(t, pair.Switch(ctx, Killed))
	require.Equal(t, 4, number(t, open(t, pair.Primary()), "SELECT SUM(n) FROM t"))
}
