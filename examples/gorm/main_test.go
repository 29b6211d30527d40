package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/servers"
)

// Sold is what there was, and no more.
func TestExample(t *testing.T) {
	server, err := servers.Start(t.Context(), servers.Postgres15, servers.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	sold, err := run(t.Context(), server.DSN)
	require.NoError(t, err)
	require.Equal(t, 20, sold)
}
