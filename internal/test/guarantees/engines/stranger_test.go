package engines

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// A server that was restarted gives the numbers of its sessions again. What ends the session of
// work that is given up ends no other.
func TestNoStrangerIsEnded(t *testing.T) {
	t.Parallel()
	eachOwnServer(t, func(t *testing.T, e *testbed.Engine, server *servers.Server) {
		f := testbed.NewFixture(t, e, testbed.MySQLOpened())
		require.NoError(t, f.Locks.Install(background))
		strangers := make([]*sql.Conn, 100)
		err := f.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, server.Kill())
			require.NoError(t, server.Restart(background))
			pool, err := sql.Open("mysql", server.DSN)
			require.NoError(t, err)
			t.Cleanup(func() { _ = pool.Close() })
			for i := range strangers {
				strangers[i], err = pool.Conn(background)
				require.NoError(t, err)
				t.Cleanup(func() { _ = strangers[i].Close() })
			}
			return nil
		})
		require.Error(t, err)
		for _, stranger := range strangers {
			require.NoError(t, stranger.PingContext(background))
		}
	})
}
