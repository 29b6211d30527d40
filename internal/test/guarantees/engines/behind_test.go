package engines

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// A goroutine that the work has left behind with the transaction's handle disturbs neither the
// commit nor who has the connection next.
func TestHandleLeftBehind(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		if e.Postgres {
			continue
		}
		for _, c := range testbed.MySQLSQL {
			t.Run(e.Name+"/"+c.Name, func(t *testing.T) {
				t.Parallel()
				f := testbed.NewSizedFixture(t, e, c, 1, "")
				rolledBackBehind(t, f)
				statementBehind(t, f)
			})
		}
	}
}

// rolledBackBehind rolls back while the Do commits: one of them is first.
func rolledBackBehind(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
	table := f.MakeTable(t, "id int primary key")
	committed := 0
	for i := range 100 {
		rolledBack := make(chan struct{})
		err := f.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
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
}

// statementBehind is a statement that the server still runs when the work returns: the commit
// comes behind it.
func statementBehind(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
	const sleeping = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'DO SLEEP(0.4%' AND db = "
	for range 3 {
		done := make(chan error, 1)
		require.NoError(t, f.Locks.Mutex(f.Key("a")).Do(background, func(_ context.Context, tx *sql.Tx) error {
			go func() {
				_, err := tx.ExecContext(background, "DO SLEEP(0.4)")
				done <- err
			}()
			eventually.True(t, "the statement runs", func() bool { return f.Total(t, sleeping+"'"+f.Label+"'") == 1 })
			return nil
		}))
		require.NoError(t, <-done)
	}
}
