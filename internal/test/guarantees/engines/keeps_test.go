package engines

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// Locks of the server's that work takes, and leaves behind, belong to the session. No connection
// goes back to the pool with one, whether the work fails or forgets. The server is one of its own:
// some of them stop all of it.
func TestWorkKeepsNothing(t *testing.T) {
	t.Parallel()
	eachOwnMySQL(t, keepsNothing)
}

func keepsNothing(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) {
	f := testbed.NewSizedFixture(t, e, c, 1, "")
	table := f.MakeTable(t, "id int auto_increment primary key")
	takes := []string{
		"LOCK TABLES " + table + " WRITE", "LOCK TABLES " + table + " READ", "FLUSH TABLES WITH READ LOCK",
		"FLUSH TABLES " + table + " WITH READ LOCK",
	}
	if e.MariaDB {
		takes = append(takes, "BACKUP STAGE START")
	}
	if c.Name != testbed.MySQLSQL[0].Name { // what ends no transaction is seen on a pool of Open alone
		takes = append(takes, "SELECT GET_LOCK('"+f.Label+"', 1)", "HANDLER "+table+" OPEN",
			"DELETE FROM "+table+" WHERE GET_LOCK('"+f.Label+"', 1) = 0")
		if e.MariaDB {
			takes = append(takes, "BACKUP LOCK "+table)
		} else {
			takes = append(takes, "LOCK INSTANCE FOR BACKUP")
		}
	}
	insert := "INSERT INTO " + table + " VALUES ()"
	fails := errors.New("fails")
	other, err := f.Admin.Conn(background)
	require.NoError(t, err)
	defer other.Close()
	_, err = other.ExecContext(background, "SET lock_wait_timeout = 2")
	require.NoError(t, err)
	require.ErrorIs(t, f.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(f.Exec(ctx, tx, insert), f.Exec(ctx, tx, "SAVEPOINT txlock"), fails)
	}), fails)
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table), "a savepoint of the library's name keeps nothing")
	for _, take := range takes {
		for _, forgets := range []bool{true, false} {
			err := f.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
				if err := f.Exec(ctx, tx, insert); err != nil {
					return err
				}
				if err := f.Exec(ctx, tx, take); err != nil || forgets {
					return err
				}
				return fails
			})
			require.True(t, forgets || errors.Is(err, fails), "%s: %v", take, err)
			free(t, f, other, insert, take)
		}
		_, _ = f.Locks.Mutex(f.Key("a")).Exec(background, txlock.Statement{SQL: take})
		free(t, f, other, insert, take)
	}
}

// free shows that nobody has a lock of the server's, and that the next call of the pool works.
func free(t *testing.T, f *testbed.Fixture[*sql.Tx], other *sql.Conn, insert, behind string) {
	t.Helper()
	made := "TABLE " + f.Label + ".made"
	for _, statement := range []string{insert, "CREATE " + made + " (id int)", "DROP " + made} {
		_, err := other.ExecContext(background, statement)
		require.NoError(t, err, behind)
	}
	var got bool
	get := "SELECT GET_LOCK('" + f.Label + "', 2) AND RELEASE_LOCK('" + f.Label + "')"
	require.NoError(t, other.QueryRowContext(background, get).Scan(&got))
	require.True(t, got, behind)
	_, err := f.Locks.Mutex(f.Key("a")).Exec(background, txlock.Statement{SQL: insert, Rows: 1})
	require.NoError(t, err, behind)
}
