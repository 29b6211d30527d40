package doctor_test

import (
	"strings"
	"testing"

	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
	"github.com/txlock/txlock/internal/test/servers"
)

func mysqlFaults() []fault {
	const untried = "row-locking: note"
	again := []string{"REVOKE SELECT, UPDATE ON %s.txlock_slots FROM %s", "GRANT SELECT, UPDATE ON %s.* TO %s"}
	onMySQL, onMariaDB := []servers.Kind{servers.MySQL}, []servers.Kind{servers.MariaDB}
	return []fault{
		{
			name: "max_execution_time", only: onMySQL, breaks: []string{"SET GLOBAL max_execution_time = 1500"},
			want: []string{"max-execution-time: warning"}, found: "max_execution_time = 1.5s",
		},
		{
			name: "max_statement_time", only: onMariaDB, breaks: []string{"SET GLOBAL max_statement_time = 1.5"},
			want: []string{"max-statement-time: warning"}, found: "max_statement_time = 1.5s",
		},
		{
			name: "max_statement_time of the user", only: onMariaDB,
			breaks: []string{"ALTER USER %s WITH MAX_STATEMENT_TIME 7"},
			want:   []string{"max-statement-time: warning"}, found: "max_statement_time = 7s in this session",
		},
		{
			name: "wait_timeout", breaks: []string{"SET GLOBAL wait_timeout = 20"},
			want: []string{"wait-timeout: warning"}, found: "wait_timeout = 20s",
		},
		{
			name: "innodb_lock_wait_timeout", breaks: []string{"SET GLOBAL innodb_lock_wait_timeout = 3"},
			want: []string{"innodb-lock-wait-timeout: warning"}, found: "innodb_lock_wait_timeout = 3s",
		},
		{
			name: "no session waits", only: onMariaDB, breaks: []string{"SET GLOBAL innodb_lock_wait_timeout = 0"},
			want:  []string{"innodb-lock-wait-timeout: warning"},
			found: "innodb_lock_wait_timeout = 0: a session does not wait",
		},
		{
			name: "short idle_transaction_timeout", only: onMariaDB,
			breaks: []string{"SET GLOBAL idle_transaction_timeout = 10"},
			want:   []string{"idle-transaction-timeout: warning"}, found: "idle_transaction_timeout = 10s",
		},
		{
			name: "long idle_readonly_transaction_timeout", only: onMariaDB,
			breaks: []string{"SET GLOBAL idle_readonly_transaction_timeout = 60"},
			want:   []string{"idle-readonly-transaction-timeout: note"}, found: "= 1m0s",
		},
		{
			name: "short idle_write_transaction_timeout", only: onMariaDB,
			breaks: []string{"SET GLOBAL idle_write_transaction_timeout = 29"},
			want:   []string{"idle-write-transaction-timeout: warning"}, found: "= 29s",
		},
		{
			name: "no deadlock detection", breaks: []string{"SET GLOBAL innodb_deadlock_detect = OFF"},
			want: []string{"deadlock-detection: warning"}, found: "innodb_deadlock_detect = OFF",
		},
		{
			name: "read_only", breaks: []string{"SET GLOBAL read_only = ON"},
			want: []string{"read-only: failure", "row-locking: warning"}, found: "read_only = ON", fix: writable,
		},
		{
			name: "super_read_only", only: onMySQL, breaks: []string{"SET GLOBAL super_read_only = ON"},
			want: []string{"read-only: failure", "row-locking: warning"}, found: "super_read_only = ON", fix: writable,
		},
		{
			name: "transactions read only by default", only: onMySQL,
			breaks: []string{"SET GLOBAL transaction_read_only = ON"},
			want:   []string{"read-only: failure", "row-locking: warning"}, found: "transaction_read_only = ON",
		},
		{
			name: "transactions read only by default", only: onMariaDB,
			breaks: []string{"SET GLOBAL tx_read_only = ON"},
			want:   []string{"read-only: failure", "row-locking: warning"}, found: "tx_read_only = ON",
		},
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
		{
			name: "a slot is missing", breaks: []string{"DELETE FROM txlock_slots WHERE slot = 5"},
			want: []string{"table: failure", untried}, found: "has 63 of 64 slots", fix: installCommand,
		},
		{
			name: "no table", breaks: []string{"DROP TABLE txlock_slots"}, want: []string{"table: failure", untried},
			found: "txlock_slots is missing", fix: installed,
		},
		{
			name: "two numbers of slots", breaks: []string{"UPDATE txlock_slots SET slots = 100 WHERE slot = 5"},
			want: []string{"table: failure", untried}, found: "different numbers of slots, 64 and 100", fix: renew,
		},
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
		{
			name: "another engine", breaks: []string{"ALTER TABLE txlock_slots ENGINE = MyISAM"},
			want: []string{"table-engine: failure", "row-locking: failure"}, found: "engine MyISAM",
		},
		{
			name: "no primary key", breaks: []string{"ALTER TABLE txlock_slots DROP PRIMARY KEY"},
			want: []string{"table-primary-key: failure"}, found: "no primary key",
		},
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
