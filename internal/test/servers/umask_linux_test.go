package servers

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/tier"
)

// When root starts a server, it runs as another user. That user must be able to read its programs
// and its configuration.
func TestStrictUmask(t *testing.T) {
	if !tier.Full() { // it downloads
		return
	}
	folder, err := os.MkdirTemp("", "txlock-umask-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	require.NoError(t, os.Chmod(folder, 0o755))
	server := private(t, Postgres18)
	t.Setenv("TXLOCK_CACHE", filepath.Join(folder, "cache"))
	defer syscall.Umask(syscall.Umask(0o077))

	pooler, err := StartPgBouncer(context.Background(), server)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pooler.Stop()) })
	do(t, open(t, pooler), "SELECT 1")
	if !strings.Contains(pooler.Origin, folder) {
		return // PgBouncer is installed on this machine
	}
	require.NoError(t, filepath.WalkDir(filepath.Join(folder, "cache", "pgbouncer-sid"),
		func(path string, entry fs.DirEntry, err error) error {
			require.NoError(t, err)
			info, err := entry.Info()
			require.NoError(t, err)
			require.NotZero(t, info.Mode()&0o004, path)
			return nil
		}))
}
