package doctor_test

import (
	"strings"
	"testing"

	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
	"github.com/txlock/txlock/internal/test/servers"
)

func mysqlFaults() []fault {
	const untried, unproved = "row-locking: note", "row-locking: warning"
	again := []string{"REVOKE SELECT, UPDATE ON %s.txlock_slots FROM %s", "GRANT SELECT, UPDATE ON %s.* TO %s"}
	onMySQL, onMariaDB := []servers.Kind{servers.MySQL}, []servers.Kind{servers.MariaDB}
	return []fault{
		setting("SET GLOBAL max_execution_time = 1500", "max_execution_time = 1.5s", "max-execution-time: warning").
			on(servers.MySQL),
		setting("SET GLOBAL max_statement_time = 1.5", "max_statement_time = 1.5s", "max-statement-time: warning").
			on(servers.MariaDB),
		setting("ALTER USER %s WITH MAX_STATEMENT_TIME 7", "max_statement_time = 7s in this session",
			"max-statement-time: warning").on(servers.MariaDB),
		setting("SET GLOBAL wait_timeout = 20", "wait_timeout = 20s", "wait-timeout: warning"),
		setting("SET GLOBAL innodb_lock_wait_timeout = 3", "innodb_lock_wait_timeout = 3s",
			"innodb-lock-wait-timeout: warning"),
		// What such a session does shows TestImpatientMariaDB of internal/test/guarantees.
		setting("SET GLOBAL innodb_lock_wait_timeout = 0", "innodb_lock_wait_timeout = 0: a session does not wait",
			"innodb-lock-wait-timeout: warning").on(servers.MariaDB),
		setting("SET GLOBAL idle_transaction_timeout = 10", "idle_transaction_timeout = 10s",
			"idle-transaction-timeout: warning").on(servers.MariaDB),
		setting("SET GLOBAL idle_readonly_transaction_timeout = 60", "= 1m0s",
			"idle-readonly-transaction-timeout: note").on(servers.MariaDB),
		setting("SET GLOBAL idle_write_transaction_timeout = 29", "= 29s", "idle-write-transaction-timeout: warning").
			on(servers.MariaDB),
		setting("SET GLOBAL innodb_deadlock_detect = OFF", "innodb_deadlock_detect = OFF",
			"deadlock-detection: warning"),
		setting("SET GLOBAL read_only = ON", "read_only = ON", "read-only: failure", unproved).fixedBy(writable),
		setting("SET GLOBAL super_read_only = ON", "super_read_only = ON", "read-only: failure", unproved).
			fixedBy(writable).on(servers.MySQL),
		setting("SET GLOBAL transaction_read_only = ON", "transaction_read_only = ON", "read-only: failure", unproved).
			on(servers.MySQL),
		setting("SET GLOBAL tx_read_only = ON", "tx_read_only = ON", "read-only: failure", unproved).
			on(servers.MariaDB),
		{
			name: "a replica", only: onMySQL, heals: []string{
				"RESET REPLICA ALL",
				"REVOKE REPLICATION CLIENT ON *.* FROM %s",
			},
			breaks: []string{
				"GRANT REPLICATION CLIENT ON *.* TO %s",
				"CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'primary', SOURCE_PORT = 3307",
			},
			want: []string{"replication: warning"}, found: "this server is a replica",
			left: []string{"replication: ok"}, fix: noReplica("RESET REPLICA ALL"),
		},
		{
			name: "a replica", only: onMariaDB, heals: []string{
				"RESET SLAVE ALL",
				"REVOKE SLAVE MONITOR ON *.* FROM %s",
			},
			breaks: []string{
				"GRANT SLAVE MONITOR ON *.* TO %s",
				"CHANGE MASTER TO MASTER_HOST = 'primary', MASTER_PORT = 3307",
			},
			want: []string{"replication: warning"}, found: "this server is a replica",
			left: []string{"replication: ok"}, fix: noReplica("RESET SLAVE ALL"),
		},
		setting("DELETE FROM txlock_slots WHERE slot = 5", "has 63 of 64 slots", "table: failure", untried).
			fixedBy(installCommand),
		setting("DROP TABLE txlock_slots", "txlock_slots is missing", "table: failure", untried).fixedBy(installed),
		setting("UPDATE txlock_slots SET slots = 100 WHERE slot = 5", "different numbers of slots, 64 and 100",
			"table: failure", untried).fixedBy(renew),
		{
			name: "another table of that name", breaks: []string{
				"DROP TABLE txlock_slots",
				"CREATE TABLE txlock_slots (slot INT PRIMARY KEY)",
			},
			want: []string{"table: failure", untried}, found: "Unknown column", fix: renew,
		},
		{
			name: "a view", breaks: []string{
				"RENAME TABLE txlock_slots TO behind",
				"CREATE VIEW txlock_slots AS SELECT * FROM behind",
			},
			want: []string{"table-kind: failure", "row-locking: note"}, found: "VIEW",
			fix: func(t *testing.T, s *site, _ doctor.Finding) string {
				s.execute(t, "DROP VIEW txlock_slots", "RENAME TABLE behind TO txlock_slots")
				return "-- stop all clients first\nDROP VIEW `" + s.name +
					"`.`txlock_slots`;\n-- then, on a shell: txlock install"
			},
		},
		setting("ALTER TABLE txlock_slots ENGINE = MyISAM", "engine MyISAM", "table-engine: failure",
			"row-locking: failure"),
		setting("ALTER TABLE txlock_slots DROP PRIMARY KEY", "no primary key", "table-primary-key: failure"),
		{
			name: "may not lock", only: onMySQL, breaks: []string{"REVOKE UPDATE ON %s.* FROM %s"}, heals: again,
			want: []string{"privileges: failure", untried}, found: "may not lock",
		},
		{
			name: "may not read", breaks: []string{
				"REVOKE SELECT, UPDATE ON %s.* FROM %s",
				"SET GLOBAL innodb_flush_log_at_trx_commit = 1",
			},
			heals: append(again, "SET GLOBAL innodb_flush_log_at_trx_commit = 2"),
			want:  []string{"privileges: failure", "privileges: warning", untried}, found: "may not lock",
			left: []string{"privileges: warning"}, fix: lockOnly,
		},
	}
}

// writable does what the fix of a read-only server says for the primary.
func writable(t *testing.T, s *site, _ doctor.Finding) string {
	t.Helper()
	s.execute(t, "SET GLOBAL read_only = OFF")
	return "-- connect to the primary server; if this is it:\nSET GLOBAL read_only = OFF;"
}

// lockOnly grants what a lock needs. The other grants are for token tables, which do not exist.
func lockOnly(t *testing.T, s *site, finding doctor.Finding) string {
	t.Helper()
	s.execute(t, "GRANT SELECT, UPDATE ON `%s`.`txlock_slots` TO %s")
	return strings.ReplaceAll("GRANT SELECT, UPDATE ON `%s`.`txlock_slots` TO '%s'@'%';", "%s", s.name)
}

func noReplica(statement string) func(*testing.T, *site, doctor.Finding) string {
	return func(t *testing.T, s *site, _ doctor.Finding) string {
		s.execute(t, statement)
		return "connect to the source, and let every client of a lock use the same server"
	}
}

func postgresFaults() []fault {
	const untried, unproved = "row-locking: note", "row-locking: warning"
	return []fault{
		setting("ALTER ROLE %s SET statement_timeout = '7s'", "statement_timeout = 7s, set for the role",
			"statement-timeout: warning"),
		setting("ALTER ROLE %s IN DATABASE %s SET statement_timeout = '7s'", "set for the role in this database",
			"statement-timeout: warning"),
		setting("ALTER DATABASE %s SET lock_timeout = 1500", "lock_timeout = 1.5s, set for the database",
			"lock-timeout: warning"),
		setting("ALTER ROLE %s SET transaction_timeout = '1min'", "transaction_timeout = 1m0s",
			"transaction-timeout: warning").on(servers.Postgres18),
		{
			name:   "short idle_in_transaction_session_timeout",
			breaks: []string{"ALTER ROLE %s SET idle_in_transaction_session_timeout = '5s'"},
			heals:  []string{"ALTER ROLE %s RESET idle_in_transaction_session_timeout"},
			want:   []string{"idle-in-transaction-session-timeout: warning"},
			found:  "= 5s, set for the role",
			left:   []string{"idle-in-transaction-session-timeout: note"},
		},
		setting("ALTER DATABASE %s SET idle_session_timeout = '10min'",
			"idle_session_timeout = 10m0s, set for the database", "idle-session-timeout: note"),
		setting("ALTER DATABASE %s SET default_transaction_isolation = 'repeatable read'",
			"begin at repeatable read, set for the database", "isolation: warning"),
		setting("ALTER ROLE %s SET default_transaction_read_only = on",
			"default_transaction_read_only = on, set for the role", "read-only: warning"),
		setting("ALTER ROLE %s SET client_encoding = 'LATIN1'", "client_encoding = LATIN1",
			"client-encoding: failure", unproved),
		setting("ALTER DATABASE %s SET standard_conforming_strings = off", "standard_conforming_strings = off",
			"standard-conforming-strings: failure", unproved),
		setting("DELETE FROM txlock_slots WHERE slot = 5", "has 63 of 64 slots", "table: failure", untried).
			fixedBy(installCommand),
		setting("TRUNCATE txlock_slots", "is empty", "table: failure", untried).fixedBy(installCommand),
		setting("DROP TABLE txlock_slots", "txlock_slots is missing", "table: failure", untried).fixedBy(installed),
		setting("UPDATE txlock_slots SET slots = 100 WHERE slot = 5", "different numbers of slots, 64 and 100",
			"table: failure", untried).fixedBy(renew),
		{
			name: "too many slots", breaks: []string{
				"ALTER TABLE txlock_slots DROP CONSTRAINT txlock_slots_check",
				"INSERT INTO txlock_slots VALUES (64, 64)",
			},
			want: []string{"table: failure", untried}, found: "has 65 of 64 slots", fix: renew,
		},
		{
			name: "another table of that name", breaks: []string{
				"DROP TABLE txlock_slots",
				"CREATE TABLE txlock_slots (slot integer PRIMARY KEY)",
			},
			want: []string{"table: failure", untried}, found: `column "slots" does not exist`, fix: renew,
		},
		{
			name: "a view", breaks: []string{
				"ALTER TABLE txlock_slots RENAME TO behind",
				"CREATE VIEW txlock_slots AS SELECT slot FROM behind",
			},
			want: []string{"table-kind: failure", untried}, found: "a view",
			fix: func(t *testing.T, s *site, _ doctor.Finding) string {
				s.execute(t, "DROP VIEW txlock_slots", "ALTER TABLE behind RENAME TO txlock_slots")
				return "-- stop all clients first\nDROP VIEW \"public\".\"txlock_slots\";\n-- then, on a shell: " +
					"txlock install"
			},
		},
		setting("ALTER TABLE txlock_slots SET UNLOGGED", "unlogged", "table-persistence: warning"),
		setting("ALTER TABLE txlock_slots ENABLE ROW LEVEL SECURITY", "hides rows", "table-row-security: failure",
			untried),
		setting("ALTER TABLE txlock_slots DROP CONSTRAINT txlock_slots_pkey", "no primary key",
			"table-primary-key: warning"),
		setting("REVOKE UPDATE ON txlock_slots FROM %s", `%s has no UPDATE on "txlock_slots"`, "privileges: failure",
			untried),
		setting("REVOKE ALL ON txlock_slots FROM %s", `%s has no SELECT, UPDATE on "txlock_slots"`,
			"privileges: failure", untried),
		{ // the examiner takes it
			name: "one connection of the role", breaks: []string{"ALTER ROLE %s CONNECTION LIMIT 1"},
			heals: []string{"ALTER ROLE %s CONNECTION LIMIT -1"},
			want:  []string{"row-locking: warning"}, found: "too many connections for role",
			left: []string{"row-locking: warning"},
		},
	}
}
