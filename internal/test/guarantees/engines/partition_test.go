package engines

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// Who waits for a row that moves to another partition meanwhile gets it there.
func TestRowMovesToAnotherPartition(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		t.Run("pgx", func(t *testing.T) { rowMoves(t, e, testbed.PgxOpened()) })
		t.Run("sql.DB", func(t *testing.T) { rowMoves(t, e, testbed.PostgresSQL[0]) })
	})
}

func rowMoves[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int, region int) PARTITION BY LIST (region")
	f.AsAdmin(t, "CREATE TABLE "+table+"_even PARTITION OF "+table+" FOR VALUES IN (0)")
	f.AsAdmin(t, "CREATE TABLE "+table+"_odd PARTITION OF "+table+" FOR VALUES IN (1)")
	f.AsAdmin(t, "CREATE INDEX ON "+table+" (id)")
	f.AsAdmin(t, "INSERT INTO "+table+" VALUES (1, 0)")
	row := f.Locks.Rows(table, "id", 1)
	nothing := func(context.Context, Tx) error { return nil }

	// moved is what wait gets while the row moves, and what follows is done to it.
	moved := func(wait func() error, further string) error {
		mover, err := e.Admin.Begin()
		require.NoError(t, err)
		_, err = mover.Exec("UPDATE " + table + " SET region = 1 - region; " + further)
		require.NoError(t, err)
		waited := make(chan error, 1)
		go func() { waited <- wait() }()
		f.Waiters(t, 1)
		require.NoError(t, mover.Commit())
		return testbed.Receive(t, waited)
	}
	again := func(err error) { // the error says so
		t.Helper()
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		require.ErrorContains(t, err, "ask again")
	}
	again(moved(func() error { return row.Do(background, nothing) }, ""))
	require.NoError(t, row.Do(background, nothing))
	require.NoError(t, f.Locks.Mutex(f.Key("outer")).Do(background, func(ctx context.Context, _ Tx) error {
		again(moved(func() error { return row.Do(ctx, nothing) }, ""))
		return row.Do(ctx, nothing)
	}), "a nested Do")
	tx := f.Guest(t)
	again(moved(func() error { return row.LockTx(background, tx) }, ""))
	require.NoError(t, row.LockTx(background, tx))
	require.ErrorIs(t, row.TryDo(background, nothing), txlock.ErrNotAcquired, "LockTx holds it where it is now")
	require.NoError(t, c.End(background, tx, false))
	again(moved(func() error { return row.Do(background, nothing) }, "DELETE FROM "+table))
	require.ErrorIs(t, row.Do(background, nothing), txlock.ErrNoRow, "gone from its new place")
}
