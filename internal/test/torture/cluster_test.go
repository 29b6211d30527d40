package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

// This takes some minutes on each engine. TestFailover has the quick form, on pairs.
func TestClustersChangePlaces(t *testing.T) {
	for _, kind := range tier.Pick(nil, nil, []servers.Kind{servers.Postgres(), servers.MySQL, servers.MariaDB}) {
		t.Run(clusterOn(kind), func(t *testing.T) {
			result := tortured(t, settings{Kind: kind, Cluster: clusterOn(kind), Switches: 8})
			require.Empty(t, result.Violations)
			require.Equal(t, 8, result.switches())
		})
	}
}
