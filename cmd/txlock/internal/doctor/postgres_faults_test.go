package doctor_test

import (
	"testing"

	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
	"github.com/txlock/txlock/internal/test/servers"
)

func postgresFaults() []fault {
	const untried = "row-locking: note"
	pg18 := []servers.Kind{servers.Postgres18}
	return []fault{
		{
			name: "statement_timeout of the role", breaks: []string{"ALTER ROLE %s SET statement_timeout = '7s'"},
			want: []string{"statement-timeout: warning"}, found: "statement_timeout = 7s, set for the role",
		},
		{
			name:   "statement_timeout of the role in the database",
			breaks: []string{"ALTER ROLE %s IN DATABASE %s SET statement_timeout = '7s'"},
			want:   []string{"statement-timeout: warning"}, found: "set for the role in this database",
		},
		{
			name: "lock_timeout of the database", breaks: []string{"ALTER DATABASE %s SET lock_timeout = 1500"},
			want: []string{"lock-timeout: warning"}, found: "lock_timeout = 1.5s, set for the database",
		},
		{
			name: "transaction_timeout", only: pg18, breaks: []string{"ALTER ROLE %s SET transaction_timeout = '1min'"},
			want: []string{"transaction-timeout: warning"}, found: "transaction_timeout = 1m0s",
		},
		{
			name:   "short idle_in_transaction_session_timeout",
			breaks: []string{"ALTER ROLE %s SET idle_in_transaction_session_timeout = '5s'"},
			heals:  []string{"ALTER ROLE %s RESET idle_in_transaction_session_timeout"},
			want:   []string{"idle-in-transaction-session-timeout: warning"},
			found:  "= 5s, set for the role",
			left:   []string{"idle-in-transaction-session-timeout: note"},
		},
		{
			name: "idle_session_timeout", breaks: []string{"ALTER DATABASE %s SET idle_session_timeout = '10min'"},
			want: []string{"idle-session-timeout: note"}, found: "idle_session_timeout = 10m0s, set for the database",
		},
		{
			name: "isolation", breaks: []string{"ALTER DATABASE %s SET default_transaction_isolation = 'repeatable " +
				"read'"},
			want: []string{"isolation: warning"}, found: "begin at repeatable read, set for the database",
		},
		{
			name: "read only by default", breaks: []string{"ALTER ROLE %s SET default_transaction_read_only = on"},
			want: []string{"read-only: warning"}, found: "default_transaction_read_only = on, set for the role",
		},
		{
			name: "client_encoding", breaks: []string{"ALTER ROLE %s SET client_encoding = 'LATIN1'"},
			want: []string{"client-encoding: failure", "row-locking: warning"}, found: "client_encoding = LATIN1",
		},
		{
			name:   "standard_conforming_strings",
			breaks: []string{"ALTER DATABASE %s SET standard_conforming_strings = off"},
			want:   []string{"standard-conforming-strings: failure", "row-locking: warning"},
			found:  "standard_conforming_strings = off",
		},
		{
			name: "a slot is missing", breaks: []string{"DELETE FROM txlock_slots WHERE slot = 5"},
			want: []string{"table: failure", untried}, found: "has 63 of 64 slots", fix: installCommand,
		},
		{
			name: "the table is empty", breaks: []string{"TRUNCATE txlock_slots"},
			want: []string{"table: failure", untried}, found: "is empty", fix: installCommand,
		},
		{
			name: "no table", breaks: []string{"DROP TABLE txlock_slots"},
			want: []string{"table: failure", untried}, found: "txlock_slots is missing", fix: installed,
		},
		{
			name: "two numbers of slots", breaks: []string{"UPDATE txlock_slots SET slots = 100 WHERE slot = 5"},
			want: []string{"table: failure", untried}, found: "different numbers of slots, 64 and 100", fix: renew,
		},
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
		{
			name: "unlogged", breaks: []string{"ALTER TABLE txlock_slots SET UNLOGGED"},
			want: []string{"table-persistence: warning"}, found: "unlogged",
		},
		{
			name: "row-level security", breaks: []string{"ALTER TABLE txlock_slots ENABLE ROW LEVEL SECURITY"},
			want: []string{"table-row-security: failure", untried}, found: "hides rows",
		},
		{
			name: "no primary key", breaks: []string{"ALTER TABLE txlock_slots DROP CONSTRAINT txlock_slots_pkey"},
			want: []string{"table-primary-key: warning"}, found: "no primary key",
		},
		{
			name: "may not update", breaks: []string{"REVOKE UPDATE ON txlock_slots FROM %s"},
			want: []string{"privileges: failure", untried}, found: `%s has no UPDATE on "txlock_slots"`,
		},
		{
			name: "may not read", breaks: []string{"REVOKE ALL ON txlock_slots FROM %s"},
			want: []string{"privileges: failure", untried}, found: `%s has no SELECT, UPDATE on "txlock_slots"`,
		},
		{ // the examiner takes it
			name: "one connection of the role", breaks: []string{"ALTER ROLE %s CONNECTION LIMIT 1"},
			heals: []string{"ALTER ROLE %s CONNECTION LIMIT -1"},
			want:  []string{"row-locking: warning"}, found: "too many connections for role",
			left: []string{"row-locking: warning"},
		},
	}
}
