package engines

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// A goroutine that the work has left behind rolls its transaction back while the Do commits: one of
// them is first.
func TestHandleLeftBehind(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		table, locks := f.MakeTable(t, "id int primary key"), f.Another(t, 1)
		committed := 0
		for i := range 100 {
			rolledBack := make(chan struct{})
			err := locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO "+table+" VALUES (?)", i)
				go func() {
					defer close(rolledBack)
					_ = tx.Rollback()
				}()
				return err
			})
			if err == nil {
				committed++
			} else {
				require.ErrorIs(t, err, txlock.ErrLost)
			}
			<-rolledBack
		}
		require.Equal(t, committed, f.Total(t, "SELECT COUNT(*) FROM "+table))
	})
}

// A server that was restarted gives the numbers of its sessions again. What ends the session of
// work that is given up ends no other.
func TestNoStrangerIsEnded(t *testing.T) {
	t.Parallel()
	eachOwnMySQL(t, func(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) {
		f := testbed.NewFixture(t, e, c)
		require.NoError(t, f.Locks.Install(background))
		strangers := make([]*sql.Conn, 100)
		err := f.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, e.Kill())
			require.NoError(t, e.Restart(background))
			pool, err := sql.Open("mysql", e.DSN)
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
