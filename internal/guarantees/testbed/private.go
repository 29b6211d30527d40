package testbed

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/servers"
)

// Mortal is an engine of the test's own, whose server it may kill. Servers that are given by
// address are not killed, so where one is given for the other tests there is none of its kind here.
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
