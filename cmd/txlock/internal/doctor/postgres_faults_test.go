package doctor_test

import (
	"testing"

	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
	"github.com/txlock/txlock/internal/test/servers"
)

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
