package doctor_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
	"github.com/txlock/txlock/internal/test/must"
)

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
