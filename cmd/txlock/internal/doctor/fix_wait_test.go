package doctor_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
	"github.com/txlock/txlock/internal/test/servers"
)

// exclusive are faults of the lock table whose fix needs the table for itself, by the check that
// finds each.
func exclusive(postgres bool) map[string]string {
	if postgres {
		return map[string]string{
			"table-persistence":  "ALTER TABLE txlock_slots SET UNLOGGED",
			"table-row-security": "ALTER TABLE txlock_slots ENABLE ROW LEVEL SECURITY",
			"table-primary-key":  "ALTER TABLE txlock_slots DROP CONSTRAINT txlock_slots_pkey",
			"table-indexes":      "CREATE INDEX more ON txlock_slots (slots)",
			"table-triggers": "CREATE FUNCTION quiet() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';" +
				"CREATE TRIGGER watched AFTER UPDATE ON txlock_slots FOR EACH ROW EXECUTE FUNCTION quiet()",
		}
	}
	return map[string]string{
		"table-engine":      "ALTER TABLE txlock_slots ENGINE = MyISAM",
		"table-primary-key": "ALTER TABLE txlock_slots DROP PRIMARY KEY",
		"table-indexes":     "CREATE INDEX more ON txlock_slots (slots)",
		"table-triggers":    "CREATE TRIGGER watched AFTER UPDATE ON txlock_slots FOR EACH ROW SET @watched = 1",
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
				admin, err := s.admin.Conn(ctx)
				require.NoError(t, err)
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
				_, err = admin.ExecContext(ctx, fix.Text)
				require.NoError(t, err)
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
	tx, err := s.admin.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(ctx, "SELECT slot FROM txlock_slots WHERE "+row)
	require.NoError(t, err)
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

// A statement that a transaction refuses is no SQL fix, because those must run at once.
func TestAlterSystem(t *testing.T) {
	s := newSite(t, private(t, servers.Postgres(), "-c", "max_connections=10"))
	finding := find(t, s.examine(t), "connections")
	require.Equal(t, doctor.Warning, finding.Severity)
	require.Equal(t, doctor.Advice, finding.Fix.Kind)
	_, err := s.admin.Exec("SELECT 1;\n" + finding.Fix.Text)
	var refusal *pgconn.PgError
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, "25001", refusal.Code)
	s.execute(t, finding.Fix.Text)
	var written string
	require.NoError(t, s.admin.QueryRow("SELECT setting FROM pg_file_settings WHERE name = 'max_connections' AND "+
		"sourcefile LIKE '%auto.conf'").Scan(&written))
	require.Equal(t, "20", written)
}

// An account that the limit of all accounts keeps out gets its own limit, which takes precedence.
// The limit of the others stays.
func TestLimitOfAllAccounts(t *testing.T) {
	onEvery(t, isMySQL, func(t *testing.T, e *engine) {
		s := newSite(t, private(t, e.Kind, "--max-user-connections=4"))
		s.eventually(t, 0, s.sessions())
		own, err := sql.Open("mysql", s.dsn)
		require.NoError(t, err)
		defer own.Close()
		for range 4 {
			conn, err := own.Conn(background)
			require.NoError(t, err)
			defer conn.Close()
		}
		findings := s.examine(t)
		require.Equal(t, []string{"connections: failure"}, ailing(findings))
		require.Contains(t, findings[0].Found, "1203")
		require.Contains(t, findings[0].Fix.Text, "ALTER USER '"+s.name+"'@'%' WITH MAX_USER_CONNECTIONS 50;")
		s.execute(t, findings[0].Fix.Text)
		require.Equal(t, doctor.OK, find(t, s.examine(t), "connections").Severity)
		var limit int
		require.NoError(t, s.admin.QueryRow("SELECT @@global.max_user_connections").Scan(&limit))
		require.Equal(t, 4, limit)
	})
}

// private starts a server with settings of its own.
func private(t *testing.T, kind servers.Kind, settings ...string) *engine {
	t.Helper()
	server, err := servers.Start(background, kind, servers.Options{Settings: settings})
	require.NoError(t, err, strings.Join(settings, " "))
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	e, err := newEngine(server)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.admin.Close()) })
	return e
}
