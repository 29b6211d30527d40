package engines

import (
	"context"
	"database/sql"
	"testing"
	"time"

	client "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
)

// The server may read a text in another character set than the driver has quoted it in. Then an
// argument must not become SQL, nor hide the COMMIT.
func TestExecCharset(t *testing.T) {
	eachMySQL(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.MySQLSQL[0])
		table := f.MakeTable(t, "id int primary key, note varbinary(200)", "(1, ''), (2, '')")
		config := must.Get(client.ParseDSN(f.DSNFor(f.Label, "", nil)))(t)
		config.Params = map[string]string{"character_set_client": "gbk"}
		driver := must.Get(mysql.Open(background, config.FormatDSN()))(t)
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
		require.ErrorContains(t, testbed.ErrorOf(f.Locks.Mutex(f.Key("a")).Exec(background, into)), "RawBytes")
	})
}

// A wait for a lock ends after five leases, and begins again. The statements behind it are not
// interrupted, however long they take, and run once.
func TestExecAfterLongWait(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		execAfterLongWait(t, e, testbed.PostgresPgx[0])
		execAfterLongWait(t, e, testbed.PostgresSQL[0])
	})
}

func execAfterLongWait[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, _ := testbed.NewInstalled(t, e, c, txlock.WithLease(shortLease))
	table := f.MakeTable(t, "id int, n int")
	runs := table + "_runs" // counts how often the statements run
	f.AsAdmin(t, "CREATE SEQUENCE "+runs)
	t.Cleanup(func() { f.AsAdmin(t, "DROP SEQUENCE "+runs) })
	ran := func() int { return f.Total(t, "SELECT last_value FROM "+runs) }
	f.AsAdmin(t, "INSERT INTO "+table+" VALUES (1, 0), (2, 0)")
	stranger := database.Begin(t, f.Admin, "UPDATE "+table+" SET n = 0 WHERE id = 2")

	m := f.Locks.Mutex(f.Key("a"))
	held := testbed.Lock(t, m)
	done := testbed.Go(func() error {
		_, err := m.Exec(background,
			txlock.Statement{SQL: "UPDATE " + table + " SET n = 1 + 0 * nextval('" + runs + "') WHERE id = 1", Rows: 1},
			txlock.Statement{SQL: "UPDATE " + table + " SET n = 1 WHERE id = 2", Rows: 1})
		return err
	})
	f.Waiters(t, 1)
	waits := " FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND " +
		"split_part(application_name, '#', 1) = '" + f.Label + "'"
	since := "SELECT coalesce(extract(epoch from max(xact_start)) * 1e6, 0)::bigint" + waits
	began := f.Total(t, since)
	eventually.True(t, "the wait begins again", func() bool { return f.Waiting(t) == 1 && f.Total(t, since) > began })
	testbed.Unlock(t, held)
	eventually.True(t, "the statements run for longer", func() bool {
		return ran() == 1 &&
			f.Total(t, "SELECT COUNT(*)"+waits+" AND clock_timestamp() - xact_start > interval '12 s'") == 1
	})
	require.Empty(t, done)
	require.NoError(t, stranger.Rollback())
	require.NoError(t, testbed.Receive(t, done))
	require.Equal(t, 2, f.Total(t, "SELECT SUM(n) FROM "+table))
	require.Equal(t, 1, ran())
}

// The types of arguments are asked for behind the lock. The server locks the tables of a statement
// that it reads: a holder that then wants one for itself would be in a circle with who waits for
// its lock. And where it has one, a try that reads first would wait.
func TestNestedExecReadsBehindTheLock(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		readsBehind(t, e, testbed.PostgresPgx[0])
		readsBehind(t, e, testbed.PgxOnPool("cache describe"))
		readsBehind(t, e, testbed.PostgresSQL[0])
	})
}

func readsBehind[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	holder, f := testbed.NewFixture(t, e, c), testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int, n int", "(1, 0)")
	add := txlock.Statement{SQL: "UPDATE " + table + " SET n = n + $1", Args: []any{1}, Rows: 1}
	done := make(chan error, 1)
	require.NoError(t, holder.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx Tx) error {
		go func() {
			done <- f.Locks.Mutex(f.Key("outer")).Do(background, func(ctx context.Context, _ Tx) error {
				return testbed.ErrorOf(f.Locks.Mutex(f.Key("a")).Exec(ctx, add))
			})
		}()
		f.Waiters(t, 1)
		require.NoError(t, holder.Exec(ctx, tx, "LOCK TABLE "+table))
		return f.Locks.Mutex(f.Key("further")).Do(background, func(ctx context.Context, _ Tx) error {
			brief, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			require.ErrorIs(t, testbed.ErrorOf(f.Locks.Mutex(f.Key("a")).TryExec(brief, add)), txlock.ErrNotAcquired)
			_, err := f.Locks.Mutex(f.Key("a")).Within(50*time.Millisecond).Exec(brief, add)
			require.ErrorIs(t, err, txlock.ErrNotAcquired)
			return brief.Err()
		})
	}))
	require.NoError(t, testbed.Receive(t, done))
	require.Equal(t, 1, f.Total(t, "SELECT n FROM "+table))
}

// An Exec does what a Do does, by itself and in the work of one: what a statement needs of those in
// front of it is there.
func TestExecDoesWhatADoDoes(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) { clientsOf(t, e, execDoes[pgx.Tx], execDoes[*sql.Tx]) })
}

func execDoes[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	schema := f.Label + "_schema"
	f.AsAdmin(t, "CREATE SCHEMA "+schema)
	t.Cleanup(func() { f.AsAdmin(t, "DROP SCHEMA "+schema+" CASCADE") })
	made := schema + ".made"
	exec := func(ctx context.Context, _ Tx) error {
		var n int
		_, err := f.Locks.Mutex(f.Key("a")).Exec(ctx, txlock.Statement{SQL: "CREATE TABLE " + made + " (id int)"},
			txlock.Statement{SQL: "SET LOCAL search_path = " + schema},
			txlock.Statement{SQL: "INSERT INTO made VALUES ($1)", Args: []any{1}, Rows: 1},
			txlock.Statement{SQL: "ALTER TABLE made ADD n int"},
			txlock.Statement{SQL: "UPDATE made SET n = $1", Args: []any{5}, Rows: 1},
			txlock.Statement{SQL: "SELECT n FROM made WHERE id = $1", Args: []any{1}, Into: []any{&n}})
		require.Equal(t, 5, n)
		return err
	}
	var none Tx
	require.NoError(t, exec(background, none))
	f.AsAdmin(t, "DROP TABLE "+made)
	require.NoError(t, f.Locks.Mutex(f.Key("outer")).Do(background, exec))
	require.Equal(t, 5, f.Total(t, "SELECT SUM(n) FROM "+made))
}
