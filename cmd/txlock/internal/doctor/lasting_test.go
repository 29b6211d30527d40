package doctor_test

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
	txmysql "github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/servers"
)

// mentioning are the findings whose text has all words.
func mentioning(findings []doctor.Finding, words ...string) (some []doctor.Finding) {
findings:
	for _, finding := range findings {
		for _, word := range words {
			if !strings.Contains(finding.Found, word) {
				continue findings
			}
		}
		some = append(some, finding)
	}
	return some
}

// sessionOf is a connection of a pool, with its number, until the test ends.
func sessionOf(t *testing.T, db *sql.DB, number string) (conn *sql.Conn, id string) {
	t.Helper()
	conn, err := db.Conn(background)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.QueryRowContext(background, "SELECT "+number).Scan(&id))
	return conn, id
}

// hold has a Do hold a key until the test ends.
func hold[Tx any](t *testing.T, locks *txlock.Locker[Tx], key string) {
	t.Helper()
	inside, ended := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(background)
	go func() {
		ended <- locks.Mutex(key).Do(ctx, func(ctx context.Context, _ Tx) error {
			close(inside)
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.NoError(t, locks.Close())
	})
	<-inside
}

// Old transactions are named, and txlock's own as such. Those of others are hidden from an ordinary
// role, which says so.
func TestVacuum(t *testing.T) {
	onEvery(t, isPostgres, func(t *testing.T, e *engine) {
		s := newSite(t, e)
		look := func(long time.Duration) []doctor.Finding {
			findings, err := doctor.PostgresWith(background, s.dsn, s.table, long, 1_000_000)
			require.NoError(t, err)
			for _, finding := range findings {
				wellFormed(t, finding.Fix)
			}
			return findings
		}
		require.Contains(t, find(t, look(0), "vacuum").Found, "nothing that "+s.name+" may see")
		others, id := sessionOf(t, s.admin, "pg_backend_pid()")
		_, err := others.ExecContext(background, "BEGIN; SELECT txid_current()")
		require.NoError(t, err)
		finding := find(t, look(0), "vacuum")
		require.Equal(t, doctor.OK, finding.Severity)
		require.Contains(t, finding.Found, "it may not see of 1 sessions of other roles")

		driver, err := postgres.Open(background, s.dsn)
		require.NoError(t, err)
		hold(t, txlock.New(driver), "sku:42")
		findings := look(0)
		ours := `it holds txlock's lock of "sku:42", for process `
		require.Len(t, mentioning(findings, "has held back vacuum for", ours), 1, findings)

		s.execute(t, "GRANT pg_read_all_stats TO %s")
		findings = look(0)
		require.Len(t, mentioning(findings, "has held back vacuum for"), 2, findings)
		old := mentioning(findings, "session "+id+" of role ", ", idle in transaction, has held back vacuum for")
		require.Len(t, old, 1, findings)
		require.Equal(t, doctor.Note, old[0].Severity)
		require.Equal(t, doctor.OK, find(t, look(time.Hour), "vacuum").Severity)
		_, ends, _ := strings.Cut(old[0].Fix.Text, "\n")
		s.execute(t, ends)
		require.Empty(t, mentioning(look(0), "session "+id+" "))
	})
}

// Prepared transactions and abandoned replication slots outlive every session.
func TestVacuumWithoutSession(t *testing.T) {
	t.Parallel()
	server, err := servers.Start(background, servers.Postgres18, servers.Options{
		Settings: []string{"-c", "max_prepared_transactions=2", "-c", "wal_level=logical"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	e, err := newEngine(server)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.admin.Close()) })
	s := newSite(t, e)
	conn, err := pgx.Connect(background, s.address(t, "", s.name))
	require.NoError(t, err)
	defer conn.Close(background)
	for _, statement := range []string{
		"SELECT pg_create_logical_replication_slot('left', 'pgoutput')",
		"BEGIN; UPDATE txlock_slots SET slots = slots WHERE slot = 1; PREPARE TRANSACTION 'it''s left'",
	} {
		_, err := conn.Exec(background, statement, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
	}
	require.Equal(t, s.baseline, s.findings(t), "neither is old")
	findings, err := doctor.PostgresWith(background, s.dsn, s.table, 0, 0)
	require.NoError(t, err)
	finding := find(t, findings, "prepared-transactions")
	require.Contains(t, finding.Found, "transaction 'it''s left' of role postgres was prepared")
	require.Contains(t, finding.Fix.Text, "ROLLBACK PREPARED 'it''s left'")
	finding = find(t, findings, "replication-slots")
	require.Contains(t, finding.Found, "nobody reads from replication slot left")
	for _, statement := range []string{"ROLLBACK PREPARED 'it''s left'", "SELECT pg_drop_replication_slot('left')"} {
		_, err := conn.Exec(background, statement)
		require.NoError(t, err)
	}
	findings, err = doctor.PostgresWith(background, s.dsn, s.table, 0, 0)
	require.NoError(t, err)
	require.Equal(t, doctor.OK, find(t, findings, "vacuum").Severity)
}

// The settings of other roles are named if those may lock.
func TestOtherRoles(t *testing.T) {
	onEvery(t, isPostgres, func(t *testing.T, e *engine) {
		s := newSite(t, e)
		other := s.name + "_app"
		s.execute(t, "CREATE ROLE "+other+" LOGIN")
		t.Cleanup(func() { s.execute(t, "DROP OWNED BY "+other, "DROP ROLE "+other) })
		s.execute(t, "ALTER ROLE "+other+" SET statement_timeout = '7s'",
			"ALTER ROLE "+other+" IN DATABASE %s SET lock_timeout = '1min'",
			"ALTER ROLE "+other+" SET work_mem = '1MB'")
		require.Equal(t, s.baseline, s.findings(t), "the role may not lock")
		s.execute(t, "GRANT SELECT, UPDATE ON txlock_slots TO "+other)
		notes := []string{"other-roles: note", "other-roles: note"}
		require.Equal(t, replaced(s.baseline, notes), s.findings(t))
		findings := s.examine(t)
		everywhere := "statement_timeout = 7s is set for role " + other + ", which may lock"
		require.Len(t, mentioning(findings, everywhere), 1)
		here := mentioning(findings, "lock_timeout = 1min is set for role "+other+" in this database")
		require.Len(t, here, 1)
		_, sets, _ := strings.Cut(here[0].Fix.Text, "\n")
		s.execute(t, sets, "ALTER ROLE "+other+" SET statement_timeout = 0")
		require.Equal(t, s.baseline, s.findings(t))
	})
}

// Transactions that may hold back purge are named, and txlock's own as such. MariaDB is told apart.
func TestPurge(t *testing.T) {
	onEvery(t, isMySQL, func(t *testing.T, e *engine) {
		s := newSite(t, e)
		look := func(long time.Duration) []doctor.Finding {
			findings, err := doctor.MySQLWith(background, s.dsn, s.table, long)
			require.NoError(t, err)
			for _, finding := range findings {
				wellFormed(t, finding.Fix)
			}
			return findings
		}
		require.Len(t, mentioning(look(0), "transactions of others are hidden without PROCESS"), 1)
		for _, finding := range look(0) {
			if finding.Check == "status" && finding.Found != "performance_schema = OFF" {
				s.execute(t, finding.Fix.Text)
			}
		}
		others, id := sessionOf(t, s.admin, "CONNECTION_ID()")
		_, err := others.ExecContext(background, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
		require.NoError(t, err)
		db, err := sql.Open("mysql", s.dsn)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		locks := txlock.New(txmysql.New(db))
		tx, err := db.Begin()
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		require.NoError(t, locks.Mutex("a").LockTx(background, tx))
		var own int
		require.NoError(t, tx.QueryRow("SELECT CONNECTION_ID()").Scan(&own))
		waiter := make(chan error, 1) // MariaDB lists what somebody waits for
		go func() {
			waiter <- locks.Mutex("a").Do(background, func(context.Context, *sql.Tx) error { return nil })
		}()

		var old []doctor.Finding
		shows(t, func() bool {
			findings := look(0)
			old = mentioning(findings, "session "+id+" of ", "idle, has held back purge")
			ours := mentioning(findings, "session "+strconv.Itoa(own)+" of "+s.name+"@", "it holds txlock's lock of ")
			return len(old) == 1 && len(ours) == 1
		})
		require.NotContains(t, old[0].Found, "txlock")
		require.NoError(t, tx.Rollback())
		require.NoError(t, <-waiter)

		// A lock holds no snapshot: it is in nobody's way on MySQL.
		committed, err := db.BeginTx(background, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		require.NoError(t, err)
		t.Cleanup(func() { _ = committed.Rollback() })
		require.NoError(t, locks.Mutex("a").LockTx(background, committed))
		require.NoError(t, committed.QueryRow("SELECT CONNECTION_ID()").Scan(&own))
		shows(t, func() bool {
			found := mentioning(look(0), "session "+strconv.Itoa(own)+" of ")
			return len(found) == map[servers.Kind]int{servers.MariaDB: 1}[e.Kind]
		})
		require.NoError(t, committed.Rollback())

		require.Empty(t, mentioning(look(time.Hour), "session "))
		general := mentioning(look(time.Hour), "MariaDB purges no old row version while any lock is held")
		require.Len(t, general, map[servers.Kind]int{servers.MariaDB: 1}[e.Kind])
		_, ends, _ := strings.Cut(old[0].Fix.Text, "\n")
		s.execute(t, ends)
		s.eventually(t, 0, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = "+id)
		shows(t, func() bool { return len(mentioning(look(0), "session "+id+" ")) == 0 })
	})
}

// shows waits for a condition on InnoDB's views, which serve an old picture when read again within
// 100 ms. Other tests read them too.
func shows(t *testing.T, condition func() bool) {
	t.Helper()
	for range 60 {
		if condition() {
			return
		}
		time.Sleep(120*time.Millisecond + rand.N(60*time.Millisecond))
	}
	require.Fail(t, "the views do not show it")
}

// A binary log that takes statements only is a failure, and nothing else is wrong there.
func TestStatementLog(t *testing.T) {
	t.Parallel()
	for _, kind := range []servers.Kind{servers.MySQL, servers.MariaDB} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			server, err := servers.Start(background, kind, servers.Options{
				Settings: []string{"--log-bin=binlog", "--server-id=1", "--binlog-format=STATEMENT"},
			})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, server.Stop()) })
			e, err := newEngine(server)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, e.admin.Close()) })
			s := newSite(t, e)
			findings := s.examine(t)
			require.Equal(t, doctor.Failure, find(t, findings, "row-locking").Severity)
			finding := find(t, findings, "binlog-format")
			require.Equal(t, "binlog_format = STATEMENT", finding.Found)
			require.Equal(t, doctor.Failure, finding.Severity)
			s.execute(t, finding.Fix.Text)
			require.Equal(t, doctor.OK, find(t, s.examine(t), "binlog-format").Severity)
		})
	}
}
