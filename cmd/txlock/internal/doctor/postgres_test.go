package doctor_test

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
	txmysql "github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
)

func (s *site) onPostgres(t *testing.T) {
	t.Helper()
	database.Exec(t, s.engine.admin, "CREATE DATABASE "+s.name)
	t.Cleanup(func() {
		database.Exec(t, s.engine.admin, "DROP DATABASE "+s.name+" WITH (FORCE)")
		database.Exec(t, s.engine.admin, "DROP ROLE "+s.name)
	})
	s.admin = database.Open(t, "pgx", s.address(t, "", s.name, "default_query_exec_mode", "simple_protocol"))
	s.dsn = s.address(t, s.name, s.name)
	s.execute(t, "CREATE ROLE %s LOGIN", "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, UPDATE ON TABLES "+
		"TO %s")
	s.install(t)
}

// slots is small, because there are many sites.
const slots = 64

// install does what `txlock install` did, as the administrator, before each table had a fence.
// WithFencing asks for what it does now. A cluster is refused, and gets no tables.
func (s *site) install(t *testing.T, options ...txlock.Option) {
	t.Helper()
	err := s.installOn(s.admin, options...)
	if errors.Is(err, txlock.ErrUnsafeEngine) {
		return
	}
	require.NoError(t, err)
	stem := strings.TrimRight(s.table, "\"`")
	quote := s.table[len(stem):]
	for _, suffix := range []string{"_leaders", "_once", "_claims", "_permits"} {
		s.execute(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON "+stem+suffix+quote+" TO %s")
	}
	if len(options) == 0 {
		s.execute(t, "DROP TABLE "+stem+"_runs"+quote+", "+stem+"_epochs"+quote)
		if s.postgres {
			s.execute(t, "DROP SEQUENCE "+stem+"_tokens"+quote)
		}
	}
}

func (s *site) installOn(db *sql.DB, options ...txlock.Option) error {
	options = append([]txlock.Option{txlock.WithTable(s.table), txlock.WithSlots(slots)}, options...)
	if s.postgres {
		return txlock.New(postgres.NewSQL(db), options...).Install(background)
	}
	return txlock.New(txmysql.New(db), options...).Install(background)
}

// The role may lift for itself what the whole server limits.
func TestPostgresServer(t *testing.T) {
	onSites(t, isPostgres, func(t *testing.T, s *site) {
		// reload has the server read its configuration, and waits until new sessions use it.
		reload := func(want string) {
			s.execute(t, "SELECT pg_reload_conf()")
			eventually.True(t, "new sessions have lock_timeout = "+want, func() bool {
				conn := must.Get(pgx.Connect(background, s.address(t, "", s.name)))(t)
				defer conn.Close(background)
				var got string
				require.NoError(t, conn.QueryRow(background, "SHOW lock_timeout").Scan(&got))
				return got == want
			})
		}
		s.execute(t, "ALTER SYSTEM SET lock_timeout = '1h'")
		defer reload("0")
		defer s.execute(t, "ALTER SYSTEM RESET lock_timeout")
		reload("1h")
		require.Equal(t, replaced(s.baseline, []string{"lock-timeout: warning"}), s.findings(t))
		finding := find(t, s.examine(t), "lock-timeout")
		require.Equal(t, "lock_timeout = 1h0m0s, set by the server's configuration file", finding.Found)
		s.execute(t, finding.Fix.Text)
		require.Equal(t, s.baseline, s.findings(t))
	})
}

func TestPostgresFaults(t *testing.T) {
	t.Parallel()
	onEvery(t, isPostgres, func(t *testing.T, e *engine) { everyFault(t, e, postgresFaults()) })
}

// What an ordinary role may not see is a note, with the grant that is missing. What it lacks for
// tokens is a warning.
func TestPostgresGrants(t *testing.T) {
	t.Parallel()
	onSites(t, isPostgres, func(t *testing.T, s *site) {
		s.execute(t, "REVOKE ALL ON txlock_slots FROM %s",
			"GRANT SELECT (slot, slots), UPDATE (slot) ON txlock_slots TO %s")
		require.Equal(t, s.baseline, s.findings(t), "privileges of columns are enough")
		for _, finding := range s.examine(t) {
			if finding.Check == "status" {
				s.execute(t, finding.Fix.Text)
			}
		}
		require.Empty(t, s.findings(t))

		s.install(t, txlock.WithFencing())
		require.Equal(t, []string{"privileges: warning", "privileges: warning", "privileges: warning"}, s.findings(t))
		for _, finding := range s.examine(t) {
			if finding.Check == "privileges" {
				s.execute(t, finding.Fix.Text)
			}
		}
		require.Empty(t, s.findings(t))
		lock, err := locker(t, postgres.Open, s.dsn, txlock.WithFencing()).Mutex("a").Lock(background)
		require.NoError(t, err, "with no more privileges than the doctor asked for")
		require.NoError(t, lock.Unlock(background))
	})
}

// The lock table may be in a schema of its own, under any name.
func TestPostgresSchema(t *testing.T) {
	t.Parallel()
	onEvery(t, isPostgres, func(t *testing.T, e *engine) {
		s := newSite(t, e, `CREATE SCHEMA "Of Locks"`)
		s.table = `"Of Locks".my_slots`
		require.Equal(t, replaced(s.baseline, []string{"privileges: failure", "row-locking: note"}), s.findings(t))
		s.execute(t, find(t, s.examine(t), "privileges").Fix.Text)
		require.Contains(t, find(t, s.examine(t), "table").Fix.Text, `txlock install --table '"Of Locks".my_slots'`)
		s.install(t)
		finding := find(t, s.examine(t), "privileges")
		require.Contains(t, finding.Found, `has no SELECT, UPDATE on "Of Locks"."my_slots"`)
		s.execute(t, finding.Fix.Text)
		require.Equal(t, s.baseline, s.findings(t))

		// Everything that is missing on the schema, on the table and for tokens is reported at
		// once. One round of fixes completes it.
		s.install(t, txlock.WithFencing())
		s.execute(t, `REVOKE ALL ON SCHEMA "Of Locks" FROM %s`, `REVOKE ALL ON ALL TABLES IN SCHEMA "Of Locks" FROM %s`)
		var found []string
		for _, finding := range s.examine(t) {
			if finding.Check == "privileges" {
				found = append(found, string(finding.Severity))
				s.execute(t, finding.Fix.Text)
			}
			if finding.Check == "kinds" {
				s.execute(t, finding.Fix.Text)
			}
		}
		require.Equal(t, []string{"failure", "failure", "warning", "warning", "warning"}, found)
		require.Equal(t, s.baseline, s.findings(t))
	})
}

// No statement can undo a setting of the connection string.
func TestPostgresConnectionString(t *testing.T) {
	t.Parallel()
	onSites(t, isPostgres, func(t *testing.T, s *site) {
		s.dsn = s.address(t, s.name, s.name, "statement_timeout", "20000", "pool_max_conns", "1")
		require.Equal(t, replaced(s.baseline, []string{"statement-timeout: warning"}), s.findings(t))
		finding := find(t, s.examine(t), "statement-timeout")
		require.Contains(t, finding.Found, "set by the connection string")
		require.Equal(t, "remove statement_timeout from the connection string and from PGOPTIONS", finding.Fix.Text)
		s.dsn = s.address(t, s.name, s.name, "client_encoding", "LATIN1")
		require.Equal(t, "remove client_encoding from the connection string and from PGOPTIONS",
			find(t, s.examine(t), "client-encoding").Fix.Text)
	})
}

func TestStandby(t *testing.T) {
	t.Parallel()
	pair := must.Get(servers.StartPair(background, servers.Postgres(), false))(t)
	t.Cleanup(func() { require.NoError(t, pair.Stop()) })
	primary, standby := pair.Primary(), pair.Standby()
	e := must.Get(newEngine(primary))(t)
	defer e.admin.Close()
	require.NoError(t, txlock.New(postgres.NewSQL(e.admin), txlock.WithSlots(slots)).Install(background))
	healthy := must.Get(doctor.Postgres(background, primary.DSN, "txlock_slots"))(t)
	var there sql.NullString
	replica := database.Open(t, "pgx", standby.DSN)
	eventually.True(t, "the standby has the lock table", func() bool {
		return replica.QueryRow("SELECT to_regclass('txlock_slots')::text").Scan(&there) == nil && there.Valid
	})

	findings := must.Get(doctor.Postgres(background, standby.DSN, "txlock_slots"))(t)
	require.Equal(t, replaced(ailing(healthy), []string{"read-only: failure", "row-locking: failure"}),
		ailing(findings))
	require.Contains(t, find(t, findings, "read-only").Found, "standby")

	require.NoError(t, pair.Promote(background))
	findings = must.Get(doctor.Postgres(background, standby.DSN, "txlock_slots"))(t)
	require.Equal(t, ailing(healthy), ailing(findings))
}

// The timeouts do to locks what the doctor says.
func TestPostgresTimeoutsCut(t *testing.T) {
	t.Parallel()
	onSites(t, isPostgres, func(t *testing.T, s *site) {
		locks := func(parameters ...string) *txlock.Locker[pgx.Tx] {
			return locker(t, postgres.Open, s.address(t, s.name, s.name, parameters...))
		}
		const limit = "3000" // ms; the limit also applies to connecting and beginning, which are much faster
		plain := locks()
		held := must.Get(plain.Mutex("a").Lock(background))(t)
		for _, setting := range []string{"statement_timeout", "lock_timeout"} {
			_, err := locks(setting, limit).Mutex("a").Lock(background)
			require.ErrorIs(t, err, txlock.ErrNotAcquired, setting)
		}
		require.NoError(t, held.Unlock(background))

		// This setting ends a LockTx. It does not end a Lock, which sets a longer one for itself.
		const setting = "idle_in_transaction_session_timeout"
		kept := must.Get(locks(setting, limit).Mutex("b").Lock(background))(t)
		conn := must.Get(pgx.Connect(background, s.address(t, s.name, s.name, setting, limit)))(t)
		defer conn.Close(background)
		tx := must.Get(conn.Begin(background))(t)
		// A new Locker would leave tx idle while it connects.
		require.NoError(t, plain.Mutex("a").LockTx(background, tx))
		s.eventually(t, 0, "SELECT count(*) FROM pg_stat_activity WHERE pid = "+strconv.Itoa(int(conn.PgConn().PID())))
		require.NoError(t, context.Cause(kept.Context()))
		require.NoError(t, kept.Unlock(background))

		if s.Kind == servers.Postgres15 {
			return
		}
		cut := must.Get(locks("transaction_timeout", limit).Mutex("a").Lock(background))(t)
		<-cut.Context().Done()
		require.ErrorIs(t, context.Cause(cut.Context()), txlock.ErrLost)
		require.ErrorIs(t, cut.Unlock(background), txlock.ErrLost)
	})
}
