package doctor_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
	txmysql "github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
)

// config is the server's DSN, for another user and the site's database.
func (s *site) config(t *testing.T, user string) *mysql.Config {
	t.Helper()
	config := must.Get(mysql.ParseDSN(s.DSN))(t)
	config.DBName = s.name
	if user != "" {
		config.User, config.Passwd = user, ""
	}
	return config
}

func (s *site) onMySQL(t *testing.T) {
	t.Helper()
	database.Exec(t, s.engine.admin, "CREATE DATABASE "+s.name)
	t.Cleanup(func() {
		for _, statement := range []string{"DROP DATABASE " + s.name, "DROP USER " + s.name} {
			database.Exec(t, s.engine.admin, statement)
		}
	})
	config := s.config(t, "")
	config.MultiStatements = true
	s.admin = database.Open(t, "mysql", config.FormatDSN())
	s.dsn = s.config(t, s.name).FormatDSN()
	s.execute(t, "CREATE USER %s", "GRANT SELECT, UPDATE, TRIGGER ON %s.* TO %s")
	s.install(t)
}

func TestMySQLServer(t *testing.T) {
	t.Parallel()
	onEvery(t, isMySQL, func(t *testing.T, e *engine) {
		everyFault(t, e, mysqlFaults())
		t.Run("tokens", func(t *testing.T) { tokens(t, newSite(t, e)) })
	})
}

// reset restores a server variable's default, on MySQL also for the next start.
func (s *site) reset(t *testing.T, variable string) {
	t.Helper()
	s.execute(t, "SET GLOBAL "+variable+" = DEFAULT")
	if s.Kind == servers.MySQL {
		s.execute(t, "RESET PERSIST IF EXISTS "+variable)
	}
}

// Tokens need more than locks do: privileges, and a server that flushes. Test servers do not flush.
func tokens(t *testing.T, s *site) {
	const variable = "SET GLOBAL innodb_flush_log_at_trx_commit = 2"
	defer s.execute(t, variable)
	defer s.reset(t, "innodb_flush_log_at_trx_commit")
	s.execute(t, variable)
	require.Equal(t, s.baseline, s.findings(t))
	s.install(t, txlock.WithFencing())
	want := []string{"durability: warning", "privileges: warning"}
	require.Equal(t, replaced(s.baseline, want), s.findings(t))
	for _, check := range []string{"durability", "privileges"} {
		s.execute(t, find(t, s.examine(t), check).Fix.Text)
	}
	require.Equal(t, s.baseline, s.findings(t))

	// The server hides tables on which the user has no privilege.
	s.execute(t, "REVOKE ALL PRIVILEGES, GRANT OPTION FROM %s", "GRANT SELECT, UPDATE, TRIGGER ON txlock_slots TO %s",
		variable)
	for _, finding := range s.examine(t) {
		if finding.Check == "kinds" {
			s.execute(t, finding.Fix.Text)
		}
	}
	require.Equal(t, replaced(s.baseline, want), s.findings(t))
	require.Contains(t, find(t, s.examine(t), "privileges").Found, "may not draw tokens, or they are not installed")
	require.Contains(t, find(t, s.examine(t), "durability").Found, "whether tokens are installed is not visible")
	for _, check := range []string{"durability", "privileges"} {
		s.execute(t, find(t, s.examine(t), check).Fix.Text)
	}
	require.Equal(t, s.baseline, s.findings(t))
	lock, err := locker(t, txmysql.Open, s.dsn, txlock.WithFencing()).Mutex("a").Lock(background)
	require.NoError(t, err, "with no more privileges than the doctor asked for")
	require.NoError(t, lock.Unlock(background))
}

// What an ordinary user may not see is a note, with the grant that is missing.
func TestMySQLGrants(t *testing.T) {
	onSites(t, isMySQL, func(t *testing.T, s *site) {
		left := []string{"innodb-lock-wait-timeout: note", "isolation: note"}
		for _, finding := range s.examine(t) {
			if finding.Check == "replication" || finding.Check == "status" &&
				finding.Found != "performance_schema = OFF" {
				s.execute(t, finding.Fix.Text)
			}
		}
		if s.Kind == servers.MariaDB { // its performance_schema is off by default
			left = append(left, "status: note")
		}
		require.Equal(t, left, s.findings(t))
	})
}

// A setting of the connection string counts, and no statement can undo it.
func TestMySQLConnectionString(t *testing.T) {
	onSites(t, isMySQL, func(t *testing.T, s *site) {
		config := s.config(t, s.name)
		isolation := "transaction_isolation"
		if s.Kind == servers.MariaDB {
			isolation = "tx_isolation"
		}
		config.Params = map[string]string{"wait_timeout": "10", isolation: "'READ-COMMITTED'"}
		s.dsn = config.FormatDSN()
		require.Equal(t, replaced(s.baseline, []string{"wait-timeout: warning", "isolation: ok"}), s.findings(t))
		finding := find(t, s.examine(t), "wait-timeout")
		require.Contains(t, finding.Found, "wait_timeout = 10s in this session")
		require.Equal(t, "remove wait_timeout from the connection string", finding.Fix.Text)
		require.Contains(t, find(t, s.examine(t), "isolation").Found, "READ-COMMITTED in this session")
	})
}

// The lock table may be in another database, under any name.
func TestMySQLSchema(t *testing.T) {
	onSites(t, isMySQL, func(t *testing.T, s *site) {
		s.table = "`" + s.name + "`.`the ``slots``'`"
		finding := find(t, s.examine(t), "table")
		require.Contains(t, finding.Fix.Text, "txlock install --table '`"+s.name+"`.`the ``slots``'\\''`'\n")
		s.install(t)
		require.Equal(t, s.baseline, s.findings(t))
		s.execute(t, "ALTER TABLE "+s.table+" ENGINE = MyISAM")
		s.execute(t, find(t, s.examine(t), "table-engine").Fix.Text)
		require.Equal(t, s.baseline, s.findings(t))
	})
}

// The timeouts do to locks what the doctor says.
func TestMySQLTimeoutsCut(t *testing.T) {
	onSites(t, isMySQL, func(t *testing.T, s *site) {
		locks := func(name, value string) *txlock.Locker[*sql.Tx] {
			config := s.config(t, s.name)
			config.Params = map[string]string{name: value}
			return locker(t, txmysql.Open, config.FormatDSN())
		}
		held := must.Get(locks("wait_timeout", "100").Mutex("a").Lock(background))(t)
		limit, value := "max_execution_time", "200"
		if s.Kind == servers.MariaDB {
			limit, value = "max_statement_time", "0.2"
		}
		config := s.config(t, s.name)
		config.Params = map[string]string{limit: value}
		db := database.Open(t, "mysql", config.FormatDSN())
		tx := must.Get(db.Begin())(t)
		require.ErrorIs(t, locks(limit, value).Mutex("a").LockTx(background, tx), txlock.ErrNotAcquired)
		require.NoError(t, tx.Rollback())
		require.NoError(t, held.Unlock(background))
		if s.Kind != servers.MariaDB {
			return
		}
		s.execute(t, "CREATE TABLE work (n INT)", "INSERT INTO work VALUES (1)")
		for _, idle := range []string{
			"idle_transaction_timeout", "idle_readonly_transaction_timeout",
			"idle_write_transaction_timeout",
		} {
			began := time.Now()
			require.ErrorIs(t, locks(idle, "1").Mutex("a").Do(background, func(ctx context.Context, tx *sql.Tx) error {
				if idle == "idle_write_transaction_timeout" {
					if _, err := tx.ExecContext(ctx, "UPDATE work SET n = n + 1"); err != nil {
						return err
					}
				}
				<-ctx.Done()
				return context.Cause(ctx)
			}), txlock.ErrLost, idle)
			require.Less(t, time.Since(began), 15*time.Second, "not by the lease, which is 30 s")
		}
	})
}

func TestNodeOfCluster(t *testing.T) {
	for kind, cluster := range map[servers.Kind]string{
		servers.MySQL:   "in multi-primary mode",
		servers.MariaDB: `Galera cluster "txlock"`,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			node := must.Get(servers.StartNode(background, kind))(t)
			t.Cleanup(func() { require.NoError(t, node.Stop()) })
			e := must.Get(newEngine(node))(t)
			t.Cleanup(func() { _ = e.admin.Close() })
			s := newSite(t, e)
			found := find(t, s.examine(t), "cluster")
			require.Contains(t, found.Found, cluster)
			if kind == servers.MariaDB {
				require.Equal(t, doctor.Note, found.Severity)
				require.Contains(t, found.Why, "evs.suspect_timeout, here PT5S")
				return
			}
			require.Equal(t, doctor.Failure, found.Severity)
			s.execute(t, found.Fix.Text)
			require.Equal(t, doctor.Note, find(t, s.examine(t), "cluster").Severity)
		})
	}
}
