package servers

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/tier"
)

func TestGaleraLosesNodes(t *testing.T) {
	if !tier.Full() { // the guarantees and the torture program have it, too
		return
	}
	t.Parallel()
	ctx := context.Background()
	g, err := StartGalera(ctx, MariaDB)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Stop()) })
	do(t, open(t, g.Primary()), "CREATE TABLE t (n INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
	for n, way := range []Way{Planned, Killed, Stopped, Isolated, Planned} {
		former := g.Primary()
		require.NoError(t, g.End(ctx, way), way)
		require.NoError(t, g.Promote(ctx), way)
		require.NotEqual(t, former, g.Primary(), way)
		leads, _ := Leads(ctx, g, former)
		require.False(t, leads, way)
		do(t, open(t, g.Primary()), "UPDATE t SET n = n + 1")
		require.NoError(t, g.Rejoin(ctx), way)
		eventually.True(t, "the node has what it missed", func() bool {
			var at int
			return open(t, former).QueryRow("SELECT n FROM t").Scan(&at) == nil && at == n+2
		})
	}
}
