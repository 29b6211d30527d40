package servers

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/tier"
)

func TestClustersChangePlaces(t *testing.T) {
	if !tier.Full() { // these take minutes, and the torture program has them too
		return
	}
	t.Parallel()
	ctx := context.Background()
	for name, start := range map[string]func() (Fleet, error){
		"Group Replication": func() (Fleet, error) { return StartGroup(ctx) },
		"Patroni":           func() (Fleet, error) { return StartPatroni(ctx, Postgres()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fleet, err := start()
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, fleet.Stop()) })
			proxy, err := StartHAProxy(ctx, fleet)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, proxy.Stop()) })
			db := open(t, proxy)
			do(t, db, "CREATE TABLE t (n INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
			for _, way := range []Way{Planned, Killed, Stopped, Isolated, Planned} {
				former := fleet.Primary()
				require.NoError(t, fleet.End(ctx, way), way)
				require.NoError(t, fleet.Promote(ctx), way)
				require.NotEqual(t, former, fleet.Primary(), way)
				require.NoError(t, fleet.Rejoin(ctx), way)
				eventually.True(t, "the way to the new primary", func() bool {
					_, err := db.Exec("UPDATE t SET n = n + 1")
					return err == nil
				})
				leads, _ := Leads(ctx, fleet, former)
				require.False(t, leads, way)
			}
		})
	}
}
