package servers

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/tier"
)

func TestGroup(t *testing.T) {
	if !tier.Full() { // the torture program has groups
		return
	}
	t.Parallel()
	ctx := context.Background()
	group, err := StartGroup(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, group.Stop()) })
	proxy, err := StartHAProxy(ctx, group)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Stop()) })
	do(t, open(t, proxy), "CREATE TABLE t (n INT PRIMARY KEY)")
	for n, way := range []Way{Planned, Killed, Stopped, Isolated, Planned} {
		former := group.Primary()
		require.NoError(t, group.End(ctx, way), way)
		require.NoError(t, group.Promote(ctx), way)
		require.NotEqual(t, former, group.Primary(), way)
		require.NoError(t, group.Rejoin(ctx), way)
		require.NoError(t, proxy.answering(ctx), way)
		do(t, open(t, proxy), fmt.Sprintf("INSERT INTO t VALUES (%d)", n))
		leads, err := Leads(ctx, group, former)
		require.NoError(t, err)
		require.False(t, leads, way)
	}
}
