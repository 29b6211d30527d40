package testbed

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/servers"
)

// Mortal is an engine on a server that the test may kill. Tests skip the kinds whose servers are
// given by address: those must not be killed.
func Mortal(t *testing.T, kind servers.Kind) *Engine {
	t.Helper()
	server, err := servers.Start(background, kind, servers.Options{})
	require.NoError(t, err)
	return Owned(t, server)
}

// Owned is the engine of a server that ends with the test.
func Owned(t *testing.T, server *servers.Server) *Engine {
	t.Helper()
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	e, err := NewEngine(server)
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Admin.Close() })
	return e
}
