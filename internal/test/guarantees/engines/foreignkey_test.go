package engines

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// A locked row of the caller's is excluded from what other programs do to it, and takes new rows
// that refer to it.
func TestLockedRowTakesChildren(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		t.Run("pgx", func(t *testing.T) { lockedRowTakesChildren(t, e, testbed.PgxOpened()) })
		t.Run("sql.DB", func(t *testing.T) { lockedRowTakesChildren(t, e, testbed.PostgresSQL[0]) })
	})
}

func lockedRowTakesChildren[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	parent := f.MakeTable(t, "id int primary key, name text")
	child := parent + "_child"
	f.AsAdmin(t, "CREATE TABLE "+child+" (parent int references "+parent+")")
	t.Cleanup(func() { f.AsAdmin(t, "DROP TABLE "+child) })
	f.AsAdmin(t, "INSERT INTO "+parent+" VALUES (1, 'one'), (2, 'two')")

	others := func() {
		limited, cancel := context.WithTimeout(background, 10*time.Second)
		defer cancel()
		conn, err := e.Admin.Conn(limited)
		require.NoError(t, err)
		defer conn.Close()
		if _, err = conn.ExecContext(limited, "INSERT INTO "+child+" VALUES (1)"); err != nil {
			t.Error(err) // and go on: the lock must end before the tables can be dropped
			return
		}
		_, err = conn.ExecContext(limited, "SET lock_timeout = '20ms'")
		require.NoError(t, err)
		defer func() { _, _ = conn.ExecContext(limited, "RESET lock_timeout") }()
		for _, statement := range []string{
			"UPDATE " + parent + " SET name = 'other' WHERE id = 1", "DELETE FROM " + parent + " WHERE id = 2",
			"SELECT 1 FROM " + parent + " WHERE id = 1 FOR UPDATE",
			"SELECT 1 FROM " + parent + " WHERE id = 2 FOR NO KEY UPDATE NOWAIT",
		} {
			_, err = conn.ExecContext(limited, statement)
			require.ErrorContains(t, err, "55P03", statement)
		}
	}
	rows := f.Locks.Rows(parent, "id", 1, 2)
	lock, err := rows.Lock(background)
	require.NoError(t, err)
	others()
	require.NoError(t, lock.Unlock(background))
	require.NoError(t, rows.TryDo(background, func(context.Context, Tx) error {
		others()
		return nil
	}))
	tx := f.Guest(t)
	require.NoError(t, rows.LockTx(background, tx))
	others()
	require.NoError(t, c.End(background, tx, false))
}
