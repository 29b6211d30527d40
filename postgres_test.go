package txlock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
)

// Rows that the work has left unread keep COMMIT from being sent.
func TestUnreadRowsAreNotACommit(t *testing.T) {
	for _, e := range engines {
		if !e.postgres {
			continue
		}
		f := newFixture(t, e, pgxOnPool(""))
		table := f.makeTable(t, "id int primary key")
		err := f.locks.Mutex(f.key("unread")).Do(background, func(ctx context.Context, tx pgx.Tx) error {
			require.NoError(t, f.exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
			_, err := tx.Query(ctx, "SELECT * FROM generate_series(1, 100000)")
			return err
		})
		require.ErrorIs(t, err, txlock.ErrLost)
		require.ErrorContains(t, err, "nothing is committed")
		require.Zero(t, f.total(t, "SELECT COUNT(*) FROM "+table))
		f.transactions(t, 0) // the server has seen the end of the connection
		f.free(t, f.key("unread"))
	}
}

// Work that commits through its handle cannot go on beside it.
func TestWorkCommitsByItself(t *testing.T) {
	for _, e := range engines {
		if !e.postgres {
			continue
		}
		f := newFixture(t, e, pgxOpened())
		table := f.makeTable(t, "id int primary key")
		err := f.locks.Mutex(f.key("self")).Do(background, func(ctx context.Context, tx pgx.Tx) error {
			conn := tx.Conn()
			require.NoError(t, f.exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
			require.NoError(t, tx.Commit(ctx))
			require.ErrorIs(t, f.exec(ctx, tx, "INSERT INTO "+table+" VALUES (2)"), pgx.ErrTxClosed)
			_, err := conn.Exec(ctx, "INSERT INTO "+table+" VALUES (3)")
			require.ErrorContains(t, err, "read-only")
			return nil
		})
		require.ErrorIs(t, err, txlock.ErrLost)
		require.Equal(t, 1, f.total(t, "SELECT SUM(id) FROM "+table))
		f.free(t, f.key("self"))
	}
}

// An error that work has swallowed keeps a nested Do from running, and is no loss: a savepoint of
// the work's own mends it.
func TestNestedDoInAbortedTransaction(t *testing.T) {
	for _, e := range engines {
		if !e.postgres {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Run("pgx", func(t *testing.T) { nestedInAborted(t, e, pgxOpened()) })
			t.Run("sql.DB", func(t *testing.T) { nestedInAborted(t, e, postgresSQL[0]) })
		})
	}
}

func nestedInAborted[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	table := f.makeTable(t, "id int primary key")
	m := f.locks.Mutex(f.key("aborted"))
	insert := func(ctx context.Context, tx Tx) error { return f.exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)") }
	require.NoError(t, m.Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, f.exec(ctx, tx, "SAVEPOINT mine"))
		require.Error(t, f.exec(ctx, tx, "SELECT 1 / 0"))
		err := m.Do(ctx, insert)
		require.ErrorContains(t, err, "a statement failed before")
		require.NotErrorIs(t, err, txlock.ErrLost)
		require.NoError(t, f.exec(ctx, tx, "ROLLBACK TO SAVEPOINT mine"))
		return m.Do(ctx, insert)
	}))
	require.Equal(t, 1, f.total(t, "SELECT COUNT(*) FROM "+table))
}

// The last handle may be a nested Do that fails: it tells that the commit of the others before it
// was refused.
func TestLastHandleTellsOfTheCommit(t *testing.T) {
	for _, e := range engines {
		if !e.postgres { // which alone has constraints that are checked at COMMIT
			continue
		}
		f := newFixture(t, e, pgxOpened())
		table := f.makeTable(t, "id int unique deferrable initially deferred")
		m := f.locks.Mutex(f.key("last"))
		for _, failure := range []error{errWork, context.Canceled} {
			lock, err := m.Lock(background)
			require.NoError(t, err)
			require.NoError(t, m.Do(lock.Context(), func(ctx context.Context, tx pgx.Tx) error {
				return f.exec(ctx, tx, "INSERT INTO "+table+" VALUES (1), (1)")
			}))
			ctx, cancel := context.WithCancel(context.WithoutCancel(lock.Context()))
			err = m.Do(ctx, func(ctx context.Context, _ pgx.Tx) error {
				require.NoError(t, lock.Unlock(ctx))
				if cancel(); errors.Is(failure, context.Canceled) {
					return nil
				}
				return failure
			})
			require.ErrorIs(t, err, failure)
			require.ErrorContains(t, err, "unique")
			require.Zero(t, f.total(t, "SELECT COUNT(*) FROM "+table))
			f.free(t, f.key("last"))
		}
	}
}
