package doctor_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
)

// wrongs are many faults to have at once. Each has a fix that is SQL.
func wrongs(kind servers.Kind) []string {
	ofPostgres := []string{
		"ALTER ROLE %s SET statement_timeout = '7s'", "ALTER ROLE %s SET lock_timeout = '1s'",
		"ALTER DATABASE %s SET idle_session_timeout = '10min'",
		"ALTER ROLE %s SET idle_in_transaction_session_timeout = '5s'",
		"ALTER ROLE %s IN DATABASE %s SET default_transaction_isolation = 'serializable'",
		"ALTER ROLE %s SET default_transaction_read_only = on",
		"ALTER TABLE txlock_slots SET UNLOGGED",
		"ALTER TABLE txlock_slots ENABLE ROW LEVEL SECURITY", "REVOKE UPDATE ON txlock_slots FROM %s",
		// The administrator's search_path differs from the role's.
		"CREATE SCHEMA apart", "GRANT USAGE ON SCHEMA apart TO %s", "ALTER ROLE %s SET search_path = apart",
		"ALTER TABLE txlock_slots SET SCHEMA apart", "ALTER TABLE txlock_slots_epochs SET SCHEMA apart",
		"ALTER TABLE txlock_slots_runs SET SCHEMA apart",
		"ALTER SEQUENCE txlock_slots_tokens SET SCHEMA apart",
	}
	ofMySQL := []string{
		"SET GLOBAL wait_timeout = 20", "SET GLOBAL innodb_deadlock_detect = OFF",
		"ALTER TABLE txlock_slots ENGINE = MyISAM",
	}
	switch kind {
	case servers.Postgres15:
		return ofPostgres
	case servers.Postgres18:
		return append(ofPostgres, "ALTER ROLE %s SET transaction_timeout = '1min'")
	case servers.MySQL:
		return append(ofMySQL, "SET GLOBAL max_execution_time = 1500", "SET GLOBAL innodb_lock_wait_timeout = 3")
	}
	return append(ofMySQL, "SET GLOBAL max_statement_time = 7", "SET GLOBAL innodb_lock_wait_timeout = 0",
		"SET GLOBAL idle_transaction_timeout = 10",
		"SET GLOBAL idle_readonly_transaction_timeout = 60")
}

// All SQL fixes can be run at once, as they are. What is left, no SQL repairs.
func TestFixesAtOnce(t *testing.T) {
	left := map[servers.Kind][]string{
		servers.Postgres15: {"idle-in-transaction-session-timeout: note"},
		servers.Postgres18: {"idle-in-transaction-session-timeout: note"},
		servers.MySQL:      {"innodb-lock-wait-timeout: note", "isolation: note"},
		// performance_schema is OFF.
		servers.MariaDB: {"innodb-lock-wait-timeout: note", "isolation: note", "status: note"},
	}
	onSites(t, all, func(t *testing.T, s *site) {
		s.install(t, txlock.WithFencing())
		if !s.postgres { // the test servers flush nothing
			defer s.execute(t, "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
			defer s.reset(t, "innodb_flush_log_at_trx_commit")
		}
		for _, wrong := range wrongs(s.Kind) {
			if changed := globalVariable.FindStringSubmatch(wrong); changed != nil {
				defer s.reset(t, changed[1])
			}
			s.execute(t, wrong)
		}
		var fixes, checks []string
		for _, finding := range s.examine(t) {
			if finding.Fix.Kind == doctor.SQL {
				fixes, checks = append(fixes, finding.Fix.Text), append(checks, finding.Check)
			}
		}
		require.Greater(t, len(slices.Compact(checks)), 7, checks)
		s.execute(t, strings.Join(fixes, "\n"))
		require.Equal(t, left[s.Kind], s.findings(t))
	})
}

// The name of the lock table is one word for a shell.
func TestTableFlag(t *testing.T) {
	for table, want := range map[string]string{
		"txlock_slots": "", "ops.locks": " --table ops.locks", `"Of Locks".a`: ` --table '"Of Locks".a'`,
		"a'; ls": ` --table 'a'\''; ls'`,
		"größe":  " --table 'größe'", "-a": " --table '-a'",
	} {
		require.Equal(t, want, doctor.TableFlag(table))
	}
}

// A user who may not create the table is told which grants it needs. With them it can.
func TestMayNotCreate(t *testing.T) {
	onSites(t, all, func(t *testing.T, s *site) {
		s.execute(t, "DROP TABLE txlock_slots")
		if s.postgres { // where Install writes a row into the table of claims, also into another's
			s.execute(t, "DROP TABLE txlock_slots_claims")
		}
		db := database.Open(t, map[bool]string{true: "pgx", false: "mysql"}[s.postgres], s.dsn)
		require.ErrorContains(t, s.installOn(db), "denied")
		fix := find(t, s.examine(t), "table").Fix
		require.Equal(t, doctor.SQL, fix.Kind)
		require.Contains(t, fix.Text, "-- then, on a shell: txlock install\n")
		require.Contains(t, fix.Text, "txlock schema")
		s.execute(t, fix.Text)
		require.Equal(t, doctor.Fix{Text: "txlock install", Kind: doctor.Shell}, find(t, s.examine(t), "table").Fix)
		require.NoError(t, s.installOn(db, txlock.WithFencing()))
		findings := s.examine(t)
		require.Equal(t, doctor.OK, find(t, findings, "row-locking").Severity)
		require.Equal(t, doctor.OK, find(t, findings, "privileges").Severity)
	})
}

// A user with CREATE on a pattern, on everything or on the table alone only has to install.
func TestMayCreate(t *testing.T) {
	onSites(t, isMySQL, func(t *testing.T, s *site) {
		s.execute(t, "DROP TABLE txlock_slots")
		pattern := "`" + strings.ReplaceAll(s.name, "_", `\_`) + "`.*"
		for on, may := range map[string]bool{
			pattern: true, "`doctor%`.*": true, "*.*": true, "`%s`.txlock_slots": true,
			"`%s`.others": false, "`doctor`.*": false,
		} {
			// If two database patterns match, only the more specific one counts.
			s.execute(t, "GRANT CREATE, SELECT, UPDATE ON "+on+" TO %s")
			kind := find(t, s.examine(t), "table").Fix.Kind
			s.execute(t, "REVOKE CREATE, SELECT, UPDATE ON "+on+" FROM %s")
			require.Equal(t, may, kind == doctor.Shell, on)
		}
	})
}

// A missing schema is created. A schema outside the role's search_path must be named.
func TestNoSchema(t *testing.T) {
	t.Parallel()
	onSites(t, isPostgres, func(t *testing.T, s *site) {
		s.table = "ops.locks"
		fix := find(t, s.examine(t), "table").Fix
		require.Equal(t, doctor.SQL, fix.Kind)
		s.execute(t, fix.Text)
		db := database.Open(t, "pgx", s.dsn)
		require.NoError(t, s.installOn(db))
		require.Equal(t, s.baseline, s.findings(t))

		s.table = "txlock_slots"
		s.execute(t, "ALTER ROLE %s SET search_path = nowhere")
		fix = find(t, s.examine(t), "table").Fix
		require.Equal(t, doctor.Advice, fix.Kind)
		require.Contains(t, fix.Text, "--table schema.txlock_slots")
	})
}

// exclusive are faults of the lock table whose fix needs the table for itself, by the check that
// finds each.
func exclusive(postgres bool) map[string]string {
	if postgres {
		return map[string]string{
			"table-persistence":  "ALTER TABLE txlock_slots SET UNLOGGED",
			"table-row-security": "ALTER TABLE txlock_slots ENABLE ROW LEVEL SECURITY",
			"table-primary-key":  "ALTER TABLE txlock_slots DROP CONSTRAINT txlock_slots_pkey",
		}
	}
	return map[string]string{
		"table-engine":      "ALTER TABLE txlock_slots ENGINE = MyISAM",
		"table-primary-key": "ALTER TABLE txlock_slots DROP PRIMARY KEY",
	}
}

// A fix that needs the lock table for itself fails while a lock is held. It delays the locks of
// others only until then.
func TestFixesGiveWay(t *testing.T) {
	onEvery(t, all, func(t *testing.T, e *engine) {
		for check, wrong := range exclusive(e.postgres) {
			t.Run(check, func(t *testing.T) {
				t.Parallel()
				s := newSite(t, e, wrong)
				ctx, cancel := context.WithTimeout(background, 2*time.Minute)
				defer cancel()
				held := s.lockRow(ctx, t, "slot = 1 FOR UPDATE")
				fix := find(t, s.examine(t), check).Fix
				require.Equal(t, doctor.SQL, fix.Kind)
				admin := must.Get(s.admin.Conn(ctx))(t)
				defer admin.Close()
				failed := make(chan error, 1)
				go func() {
					_, err := admin.ExecContext(ctx, fix.Text)
					failed <- err
				}()
				other := s.lockRow(ctx, t, "slot = 2 FOR UPDATE SKIP LOCKED") // either may come first
				require.NoError(t, other.Rollback())
				requireTimeout(t, <-failed)
				require.NoError(t, s.lockRow(ctx, t, "slot = 2 FOR UPDATE SKIP LOCKED").Rollback())

				require.NoError(t, held.Rollback())
				must.Get(admin.ExecContext(ctx, fix.Text))(t)
				unlimited := "SELECT @@lock_wait_timeout = @@global.lock_wait_timeout"
				if e.postgres {
					unlimited = "SELECT current_setting('lock_timeout') = '0'"
				}
				var lifted bool
				require.NoError(t, admin.QueryRowContext(ctx, unlimited).Scan(&lifted))
				require.True(t, lifted, "nobody else may get a session with the limit")
				for _, finding := range s.examine(t) {
					require.NotEqual(t, check, finding.Check)
				}
			})
		}
	})
}

// lockRow locks a row as txlock does, in a transaction of the administrator, who sees all rows.
func (s *site) lockRow(ctx context.Context, t *testing.T, row string) *sql.Tx {
	t.Helper()
	tx := must.Get(s.admin.BeginTx(ctx, nil))(t)
	must.Get(tx.ExecContext(ctx, "SELECT slot FROM txlock_slots WHERE "+row))(t)
	return tx
}

func requireTimeout(t *testing.T, err error) {
	t.Helper()
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		require.Equal(t, "55P03", pg.Code)
		return
	}
	var my *mysql.MySQLError
	require.ErrorAs(t, err, &my)
	require.EqualValues(t, 1205, my.Number)
}
