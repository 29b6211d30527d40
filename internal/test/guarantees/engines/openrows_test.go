package engines

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// A call in the work of a Do whose rows are open is an error that says so, and nothing is lost.
func TestCallsWhileRowsAreOpen(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		callsRefused(t, f, "rows of a query of the work are still open", func(ctx context.Context, tx *sql.Tx) func() {
			rows, err := tx.QueryContext(ctx, "SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3")
			require.NoError(t, err)
			require.True(t, rows.Next())
			return func() { require.NoError(t, rows.Close()) }
		})
	})
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PgxOpened())
		callsRefused(t, f, "close them, first", func(ctx context.Context, tx pgx.Tx) func() {
			rows, err := tx.Query(ctx, "SELECT generate_series(1, 100000)")
			require.NoError(t, err)
			require.True(t, rows.Next())
			return rows.Close
		})
	})
}

// callsRefused opens rows in the work of a Do, makes calls there, which must say so, and ends the
// rows.
func callsRefused[Tx any](t *testing.T, f *testbed.Fixture[Tx], says string,
	open func(context.Context, Tx) (end func()),
) {
	table := f.MakeTable(t, "id int primary key")
	outer, further := f.Locks.Mutex(f.Key("outer")), f.Locks.Mutex(f.Key("further"))
	require.NoError(t, outer.Do(background, func(ctx context.Context, tx Tx) error {
		end := open(ctx, tx)
		for name, call := range map[string]func() error{
			"Lock":         func() error { _, err := further.Lock(ctx); return err },
			"TryLock":      func() error { _, err := further.TryLock(ctx); return err },
			"Do":           func() error { return further.Do(ctx, idle[Tx]) },
			"Do of a held": func() error { return outer.Do(ctx, idle[Tx]) },
			"Exec": func() error {
				_, err := further.Exec(ctx, txlock.Statement{SQL: "DELETE FROM " + table})
				return err
			},
		} {
			err := call()
			require.ErrorContains(t, err, says, name)
			require.NotErrorIs(t, err, txlock.ErrLost, name)
		}
		end()
		require.NoError(t, further.Do(ctx, idle[Tx]))
		f.Taken(t, f.Key("outer"))
		return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)")
	}))
	require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table))
}

// Rows that the work leaves unread keep COMMIT from being sent.
func TestUnreadRowsAreNotACommit(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PgxOnPool(""))
		table := f.MakeTable(t, "id int")
		err := f.Locks.Mutex(f.Key("unread")).Do(background, func(ctx context.Context, tx pgx.Tx) error {
			require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
			_, err := tx.Query(ctx, "SELECT generate_series(1, 100000)")
			return err
		})
		require.ErrorIs(t, err, txlock.ErrLost)
		require.NotErrorIs(t, err, txlock.ErrUnknown)
		require.ErrorContains(t, err, "are still open")
		f.Transactions(t, 0) // the server has noticed the closed connection
		require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
	})
}
