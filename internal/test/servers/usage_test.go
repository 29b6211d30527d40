package servers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func used(t *testing.T, server *Server) time.Duration {
	t.Helper()
	cpu, err := server.CPU()
	require.NoError(t, err)
	return cpu
}

func TestCPUCountsWorkOfAllProcesses(t *testing.T) {
	postgres(t, func(t *testing.T, kind Kind) {
		server := private(t, kind)
		db := open(t, server)
		require.NoError(t, db.Ping())
		before := used(t, server)
		begin := time.Now()
		do(t, db, "SELECT count(*) FROM generate_series(1, 12000000)")
		took := time.Since(begin)
		during := used(t, server) - before
		require.Greater(t, during, 50*time.Millisecond)
		require.Less(t, during, 2*took, "it is done by one process")

		require.NoError(t, server.Kill())
		_, err := server.CPU()
		require.ErrorContains(t, err, "does not run")
	})
}
