package engines

import (
	"database/sql"
	"testing"
	"time"

	client "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/internal/guarantees/testbed"
)

// The server may read a text in another character set than the driver has quoted it in. Then an
// argument must not become SQL, nor hide the COMMIT.
func TestExecCharset(t *testing.T) {
	t.Parallel()
	eachMySQL(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.MySQLSQL[0])
		table := f.MakeTable(t, "id int primary key, note varbinary(200)")
		f.AsAdmin(t, "INSERT INTO "+table+" VALUES (1, ''), (2, '')")
		config, err := client.ParseDSN(f.DSNFor(f.Label, "", nil))
		require.NoError(t, err)
		config.Params = map[string]string{"character_set_client": "gbk"}
		driver, err := mysql.Open(background, config.FormatDSN())
		require.NoError(t, err)
		locks := txlock.New(driver, txlock.WithTable(e.Table()))
		defer locks.Close()
		defer driver.Close()
		for _, arg := range []string{
			"\xbf' WHERE id = 0; UPDATE " + table + " SET note = 0x6f776e6564 WHERE id = 2; COMMIT -- ",
			"\xbf' WHERE id = 0 -- ",
		} {
			_, err := locks.Mutex(f.Key("a")).Exec(background, txlock.Statement{
				SQL: "UPDATE " + table + " SET note = ? WHERE id = 1", Args: []any{arg}, Rows: 1,
			})
			f.Free(t, f.Key("a"))
			written := f.Total(t, "SELECT COUNT(*) FROM "+table+" WHERE id = 1 AND note LIKE '%WHERE id = 0%'")
			require.Equal(t, err == nil, written == 1, "nil, and only nil, is committed: %v", err)
		}
		require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table+" WHERE id = 2 AND note = ''"))
	})
}

// A stored procedure goes on behind its SELECT, and may fail there.
func TestExecProcedure(t *testing.T) {
	t.Parallel()
	eachMySQL(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.MySQLSQL[0])
		table := f.MakeTable(t, "id int primary key")
		f.AsAdmin(t, "CREATE PROCEDURE "+table+"_p() BEGIN INSERT INTO "+table+" VALUES (1); SELECT 1; "+
			"SIGNAL SQLSTATE '45000'; END")
		for _, into := range [][]any{nil, {new(int)}} {
			call := txlock.Statement{SQL: "CALL " + table + "_p()", Into: into}
			_, err := f.Locks.Mutex(f.Key("a")).Exec(background, call)
			require.ErrorContains(t, err, "statement 1: Error 1644")
			require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
		}
		into := txlock.Statement{SQL: "SELECT 'a'", Into: []any{new(sql.RawBytes)}}
		_, err := f.Locks.Mutex(f.Key("a")).Exec(background, into)
		require.ErrorContains(t, err, "RawBytes")
	})
}

// A COMMIT that the server refuses is no wait that has ended, though Within is over by then.
func TestExecRefusedCommit(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		refusesCommit(t, e, testbed.PostgresPgx[0])
		refusesCommit(t, e, testbed.PostgresSQL[0])
	})
}

func refusesCommit[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key deferrable initially deferred")
	m := f.Locks.Mutex(f.Key("a"))
	_, err := m.Exec(background, txlock.Statement{SQL: "SELECT 1"}) // connects, however long that takes
	require.NoError(t, err)
	_, err = m.Within(time.Second).Exec(background,
		txlock.Statement{SQL: "INSERT INTO " + table + " VALUES (1), (1)"},
		txlock.Statement{SQL: "SELECT pg_sleep(1.1)"})
	require.ErrorContains(t, err, "commit: ")
	require.NotErrorIs(t, err, txlock.ErrNotAcquired)
	require.NotErrorIs(t, err, txlock.ErrLost)
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
	f.Free(t, f.Key("a"))
}

// The server's last words may come behind a COMMIT that took place: a server that is shut down says
// them to a session that has just committed.
func TestExecEndedInCommit(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		endedInCommit(t, e, testbed.PostgresPgx[0])
		endedInCommit(t, e, testbed.PgxOpened())
		endedInCommit(t, e, testbed.PostgresSQL[0])
	})
}

func endedInCommit[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int")
	ends := table + "_ends"
	f.AsAdmin(t, "CREATE FUNCTION "+ends+"() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS "+
		"'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(9); RETURN NULL; END'")
	t.Cleanup(func() { f.AsAdmin(t, "DROP FUNCTION "+ends+" CASCADE") })
	f.AsAdmin(t, "CREATE CONSTRAINT TRIGGER ends AFTER INSERT ON "+table+" DEFERRABLE INITIALLY DEFERRED "+
		"FOR EACH ROW EXECUTE FUNCTION "+ends+"()")
	_, err := f.Locks.Mutex(f.Key("a")).Exec(background,
		txlock.Statement{SQL: "INSERT INTO " + table + " VALUES (1)", Rows: 1})
	require.ErrorIs(t, err, txlock.ErrLost)
	require.ErrorContains(t, err, "is unknown")
	require.ErrorContains(t, err, "57P01")
}

// The statements of an Exec give way once to who waits for their snapshot, and then they run
// uninterrupted, however long ago Within was over.
func TestExecGivesWay(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		execGivesWay(t, e, testbed.PostgresPgx[0])
		execGivesWay(t, e, testbed.PostgresSQL[0])
	})
}

func execGivesWay[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int, n int")
	indexed := table + "_indexed"
	f.AsAdmin(t, "CREATE TABLE "+indexed+" (id int)")
	defer f.AsAdmin(t, "DROP TABLE "+indexed)
	f.AsAdmin(t, "INSERT INTO "+table+" VALUES (1, 0), (2, 0)")
	stranger, err := f.Admin.Begin()
	require.NoError(t, err)
	defer stranger.Rollback()
	_, err = stranger.Exec("UPDATE " + table + " SET n = 0 WHERE id = 2")
	require.NoError(t, err)
	_, err = f.Locks.Mutex(f.Key("a")).Exec(background, txlock.Statement{SQL: "SELECT 1"})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := f.Locks.Mutex(f.Key("a")).Within(2*time.Second).Exec(background,
			txlock.Statement{SQL: "UPDATE " + table + " SET n = n + 1 WHERE id = 1", Rows: 1},
			txlock.Statement{SQL: "UPDATE " + table + " SET n = n + 1 WHERE id = 2", Rows: 1})
		done <- err
	}()
	f.Waiters(t, 1)
	f.AsAdmin(t, "CREATE INDEX CONCURRENTLY ON "+indexed+" (id)")
	require.Empty(t, done)
	f.Waiters(t, 1)
	require.NoError(t, stranger.Rollback())
	require.NoError(t, testbed.Receive(t, done))
	require.Equal(t, 2, f.Total(t, "SELECT SUM(n) FROM "+table))
}
