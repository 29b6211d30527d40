package testbed

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/servers"
)

// Galera is a cluster of three nodes of MariaDB. Each fixture connects to the next node. What a
// test reads outside of a transaction is not older than what was committed on any node.
func Galera(t *testing.T) *Engine {
	t.Helper()
	cluster, err := servers.StartGalera(background, servers.MariaDB)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Stop()) })
	var nodes []*Engine
	for i, node := range cluster.Servers() {
		node.DSN += "?wsrep_sync_wait=7"
		e, err := NewEngine(node)
		require.NoError(t, err)
		t.Cleanup(func() { _ = e.Admin.Close() })
		e.Name = fmt.Sprintf("Galera node %d", i+1)
		nodes = append(nodes, e)
	}
	for _, e := range nodes {
		e.nodes = nodes
	}
	return nodes[0]
}

// IsCluster tells whether it is one of several nodes.
func (e *Engine) IsCluster() bool { return len(e.nodes) > 0 }

// node is what the next fixture connects to: of a cluster, one node after the other.
func (e *Engine) node() *Engine {
	if !e.IsCluster() {
		return e
	}
	return e.nodes[int(e.nodes[0].fixtures.Add(1))%len(e.nodes)]
}
