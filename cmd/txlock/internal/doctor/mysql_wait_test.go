package doctor_test

import (
	"database/sql"
	"errors"
	"strconv"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
	txmysql "github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/internal/test/servers"
)

// Where sessions do not wait, the doctor blames that setting, and the setting does to locks and
// work what the doctor says.
func TestNoWait(t *testing.T) {
	onEvery(t, func(e *engine) bool { return e.Kind == servers.MariaDB }, func(t *testing.T, e *engine) {
		s := newSite(t, e)
		config := s.config(t, s.name)
		config.Params = map[string]string{"innodb_lock_wait_timeout": "0"}
		s.dsn = config.FormatDSN()
		findings := s.examine(t)
		require.Equal(t, doctor.OK, find(t, findings, "row-locking").Severity)
		finding := find(t, findings, "innodb-lock-wait-timeout")
		require.Equal(t, doctor.Warning, finding.Severity)
		require.Contains(t, finding.Found, "= 0 in this session: a session does not wait")
		require.Contains(t, finding.Why, "LockTx")

		db, err := sql.Open("mysql", s.dsn)
		require.NoError(t, err)
		defer db.Close()
		locks := txlock.New(txmysql.New(db))
		held, err := locks.Mutex("a").Lock(background)
		require.NoError(t, err)
		s.execute(t, "CREATE TABLE work (n INT)", "GRANT INSERT ON work TO %s")
		tx, err := db.Begin()
		require.NoError(t, err)
		require.ErrorIs(t, locks.Mutex("a").LockTx(background, tx), txlock.ErrNotAcquired)
		_, err = tx.Exec("INSERT INTO work VALUES (1)")
		require.NoError(t, err)
		var refusal *mysql.MySQLError
		_, err = tx.Exec("SELECT slot FROM txlock_slots WHERE slots = " + strconv.Itoa(slots) +
			" FOR UPDATE SKIP LOCKED")
		require.True(t, errors.As(err, &refusal), err)
		require.EqualValues(t, 1180, refusal.Number)
		require.NoError(t, tx.Commit())
		s.eventually(t, 0, "SELECT COUNT(*) FROM work")
		require.NoError(t, held.Unlock(background))
	})
}
