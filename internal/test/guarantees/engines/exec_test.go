package engines

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	client "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
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
	_, err = m.Within(2*time.Second).Exec(background,
		txlock.Statement{SQL: "INSERT INTO " + table + " VALUES (1), (1)"},
		txlock.Statement{SQL: "SELECT pg_sleep(2.1)"})
	require.ErrorContains(t, err, "duplicate key")
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
	require.ErrorIs(t, err, txlock.ErrUnknown)
	require.ErrorContains(t, err, "57P01")
}

// A wait for a lock ends after five leases, and begins again. The statements behind it are not
// interrupted, however long they take, and run once.
func TestExecAfterLongWait(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		execAfterLongWait(t, e, testbed.PostgresPgx[0])
		execAfterLongWait(t, e, testbed.PostgresSQL[0])
	})
}

// slow are statements that wait for a stranger's row, in a table of two. The first counts how often
// they run.
type slow[Tx any] struct {
	*testbed.Fixture[Tx]
	slots, table, runs string
	stranger           *sql.Tx
	statements         []txlock.Statement
}

func newSlow[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) slow[Tx] {
	f, slots := testbed.NewInstalled(t, e, c, txlock.WithLease(shortLease))
	s := slow[Tx]{Fixture: f, slots: slots, table: f.MakeTable(t, "id int, n int")}
	s.runs = s.table + "_runs"
	f.AsAdmin(t, "CREATE SEQUENCE "+s.runs)
	t.Cleanup(func() { f.AsAdmin(t, "DROP SEQUENCE "+s.runs) })
	f.AsAdmin(t, "INSERT INTO "+s.table+" VALUES (1, 0), (2, 0)")
	stranger, err := f.Admin.Begin()
	require.NoError(t, err)
	t.Cleanup(func() { _ = stranger.Rollback() })
	_, err = stranger.Exec("UPDATE " + s.table + " SET n = 0 WHERE id = 2")
	require.NoError(t, err)
	s.stranger = stranger
	for id, more := range []string{"1 + 0 * nextval('" + s.runs + "')", "1"} {
		update := fmt.Sprintf("UPDATE %s SET n = n + %s WHERE id = %d", s.table, more, id+1)
		s.statements = append(s.statements, txlock.Statement{SQL: update, Rows: 1})
	}
	_, err = f.Locks.Mutex(f.Key("a")).Exec(background, txlock.Statement{SQL: "SELECT 1"})
	require.NoError(t, err)
	return s
}

func (s slow[Tx]) ran(t *testing.T) int { return s.Total(t, "SELECT last_value FROM "+s.runs) }

func execAfterLongWait[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := newSlow(t, e, c)
	held := testbed.Lock(t, f.Locks.Mutex(f.Key("a")))
	done := testbed.Go(func() error {
		_, err := f.Locks.Mutex(f.Key("a")).Exec(background, f.statements...)
		return err
	})
	f.Waiters(t, 1)
	since := "SELECT coalesce(extract(epoch from max(xact_start)) * 1e6, 0)::bigint FROM pg_stat_activity WHERE " +
		"wait_event_type = 'Lock' AND split_part(application_name, '#', 1) = '" + f.Label + "'"
	began := f.Total(t, since)
	eventually.True(t, "the wait begins again", func() bool { return f.Waiting(t) == 1 && f.Total(t, since) > began })
	testbed.Unlock(t, held)
	eventually.True(t, "the statements run for longer", func() bool {
		return f.ran(t) == 1 && f.Total(t, "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND "+
			"split_part(application_name, '#', 1) = '"+f.Label+"' AND clock_timestamp() - xact_start > interval "+
			"'12 s'") == 1
	})
	require.Empty(t, done)
	require.NoError(t, f.stranger.Rollback())
	require.NoError(t, testbed.Receive(t, done))
	require.Equal(t, 2, f.Total(t, "SELECT SUM(n) FROM "+f.table))
	require.Equal(t, 1, f.ran(t))
}

// The types of arguments are asked for behind the lock. The server locks the tables of a statement
// that it reads: a holder that then wants one for itself would be in a circle with who waits for
// its lock. And where it has one, a try that reads first would wait.
func TestNestedExecReadsBehindTheLock(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		readsBehind(t, e, testbed.PostgresPgx[0])
		readsBehind(t, e, testbed.PgxOnPool("cache describe"))
		readsBehind(t, e, testbed.PostgresSQL[0])
	})
}

func readsBehind[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	holder, f := testbed.NewFixture(t, e, c), testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int, n int")
	f.AsAdmin(t, "INSERT INTO "+table+" VALUES (1, 0)")
	add := txlock.Statement{SQL: "UPDATE " + table + " SET n = n + $1", Args: []any{1}, Rows: 1}
	done := make(chan error, 1)
	require.NoError(t, holder.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx Tx) error {
		go func() {
			done <- f.Locks.Mutex(f.Key("outer")).Do(background, func(ctx context.Context, _ Tx) error {
				_, err := f.Locks.Mutex(f.Key("a")).Exec(ctx, add)
				return err
			})
		}()
		f.Waiters(t, 1)
		require.NoError(t, holder.Exec(ctx, tx, "LOCK TABLE "+table))
		return f.Locks.Mutex(f.Key("further")).Do(background, func(ctx context.Context, _ Tx) error {
			brief, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			_, err := f.Locks.Mutex(f.Key("a")).TryExec(brief, add)
			require.ErrorIs(t, err, txlock.ErrNotAcquired)
			_, err = f.Locks.Mutex(f.Key("a")).Within(50*time.Millisecond).Exec(brief, add)
			require.ErrorIs(t, err, txlock.ErrNotAcquired)
			return brief.Err()
		})
	}))
	require.NoError(t, testbed.Receive(t, done))
	require.Equal(t, 1, f.Total(t, "SELECT n FROM "+table))
}

// An Exec does what a Do does: what a statement needs of those in front of it is there, an Into has
// the row that came, and rows are locked by a column that is not unique.
func TestExecDoesWhatADoDoes(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) { clientsOf(t, e, execDoes[pgx.Tx], execDoes[*sql.Tx]) })
}

func execDoes[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key, k int, n int not null")
	f.AsAdmin(t, "INSERT INTO "+table+" VALUES (1, 7, 0), (2, 7, 0), (3, 8, 0)")
	schema, procedure := table+"_schema", table+"_p"
	f.AsAdmin(t, "CREATE SCHEMA "+schema)
	t.Cleanup(func() { f.AsAdmin(t, "DROP SCHEMA "+schema+" CASCADE") })
	f.AsAdmin(t, "CREATE PROCEDURE "+procedure+"(INOUT n int) LANGUAGE plpgsql AS 'BEGIN n := n + 1; END'")
	t.Cleanup(func() { f.AsAdmin(t, "DROP PROCEDURE "+procedure) })
	var n int
	var zone string
	made := schema + ".made"
	for _, ctx := range []context.Context{background, nil} {
		in := func(work func(context.Context) error) error { return work(ctx) }
		if ctx == nil {
			in = func(work func(context.Context) error) error {
				return f.Locks.Mutex(f.Key("outer")).Do(background,
					func(ctx context.Context, _ Tx) error { return work(ctx) })
			}
		}
		require.NoError(t, in(func(ctx context.Context) error {
			_, err := f.Locks.Mutex(f.Key("a")).Exec(ctx, txlock.Statement{SQL: "CREATE TABLE " + made + " (id int)"},
				txlock.Statement{SQL: "SET LOCAL search_path = " + schema},
				txlock.Statement{SQL: "INSERT INTO made VALUES ($1)", Args: []any{1}, Rows: 1},
				txlock.Statement{SQL: "ALTER TABLE made ADD n int"},
				txlock.Statement{SQL: "UPDATE made SET n = $1", Args: []any{5}, Rows: 1},
				txlock.Statement{SQL: "SELECT n FROM made WHERE id = $1", Args: []any{1}, Into: []any{&n}})
			return err
		}))
		require.Equal(t, 5, n)
		require.Equal(t, 5, f.Total(t, "SELECT SUM(n) FROM "+made))
		f.AsAdmin(t, "DROP TABLE "+made)

		require.NoError(t, in(func(ctx context.Context) error {
			_, err := f.Locks.Mutex(f.Key("a")).Exec(ctx,
				txlock.Statement{SQL: "CALL " + procedure + "(41)", Into: []any{&n}},
				txlock.Statement{SQL: "SHOW TimeZone", Into: []any{&zone}})
			require.NoError(t, err)
			_, err = f.Locks.Mutex(f.Key("a")).Exec(ctx, txlock.Statement{
				SQL: "UPDATE " + table + " SET n = 9 WHERE id = 1", Into: []any{&n},
			})
			require.ErrorIs(t, err, txlock.ErrRows, "no row came")
			affected, err := f.Locks.Rows(table, "k", 7).Exec(ctx, txlock.Statement{
				SQL: "UPDATE " + table + " SET n = n + $1 WHERE k = $2", Args: []any{1, 7}, Rows: 2,
			})
			require.Equal(t, []int64{2}, affected)
			return err
		}))
		require.Equal(t, 42, n)
		require.NotEmpty(t, zone)
	}
	require.Equal(t, 4, f.Total(t, "SELECT SUM(n) FROM "+table))
}
