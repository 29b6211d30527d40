// Package installation has the lock table and those beside it, as data.
package installation

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// tables are the lock table and those beside it. The hashes are new since version 0.1. Nothing else
// asks for columns, which some servers are slow to find.
var tables = []struct{ suffix, from, definition string }{
	// Every row states the number of slots: missing rows show, and a client with an old number
	// finds no row to lock instead of a wrong one. On Galera a lock changes taken.
	{"", "TABLES WHERE", ` (
    slot INT NOT NULL PRIMARY KEY,
    slots INT NOT NULL,
    taken BIGINT NOT NULL DEFAULT 0,
    CHECK (slot >= 0 AND slot < slots)
) ENGINE=InnoDB`},

	// What tokens are drawn from.
	{locktable.Epochs, "TABLES WHERE", ` (
    epoch BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY
) ENGINE=InnoDB`},
	{locktable.Runs, "TABLES WHERE", ` (
    server BIGINT UNSIGNED NOT NULL,
    epoch BIGINT NOT NULL PRIMARY KEY,
    start BIGINT UNSIGNED NOT NULL
) ENGINE=InnoDB`},

	// The rows of elections. Clients agree on the hash of a name. The name is for people.
	{locktable.Leaders, "COLUMNS WHERE COLUMN_NAME = 'hash' AND", ` (
    id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    hash CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name VARCHAR(255) CHARACTER SET ascii NULL,
    part ENUM('seat', 'record', 'office') NOT NULL,
    identity VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    term BIGINT NOT NULL DEFAULT 0,
    since DATETIME(6) NULL COMMENT 'UTC',
    UNIQUE (hash, part)
) ENGINE=InnoDB`},

	// The markers. Sweep finds old ones by the index. Run is the number of the last that wrote.
	{locktable.Markers, "TABLES WHERE", ` (
    marker BINARY(32) NOT NULL PRIMARY KEY,
    done_at DATETIME(6) NOT NULL COMMENT 'UTC',
    run BIGINT NOT NULL,
    KEY done_at (done_at)
) ENGINE=InnoDB`},

	// The claims. Sweep finds old ones by the index. Holder is any bytes, the secret proves it.
	{locktable.Claims, "TABLES WHERE", ` (
    claim BINARY(32) NOT NULL PRIMARY KEY,
    name TEXT CHARACTER SET ascii NULL,
    holder VARBINARY(255) NOT NULL,
    token BIGINT NOT NULL,
    secret BIGINT NOT NULL,
    since DATETIME(6) NOT NULL COMMENT 'UTC',
    until DATETIME(6) NOT NULL COMMENT 'UTC',
    KEY until (until)
) ENGINE=InnoDB`},

	// The rows of permits, with hash and name likewise. A row with a negative number is no permit.
	// It stands behind rows that were made together: at REPEATABLE READ, who passes the last of
	// them locks the gap in front of it, and not the end of the table, where others are made.
	{locktable.Permits, "COLUMNS WHERE COLUMN_NAME = 'hash' AND", ` (
    id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    hash CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name VARCHAR(255) CHARACTER SET ascii NULL,
    permit INT NOT NULL,
    UNIQUE (hash, permit)
) ENGINE=InnoDB`},
}

// Layout is that of a lock table. CREATE TABLE commits at once, and waits for others who create it.
func Layout(locks string) (l dialects.Layout, err error) {
	beside, err := sqltext.Beside(locks)
	for _, t := range tables {
		l.Parts = append(l.Parts, dialects.Part{
			Table: beside(t.suffix), SQL: "CREATE TABLE IF NOT EXISTS " + beside(t.suffix) + t.definition,
			Missing: "NOT EXISTS (" + in(t.from, beside(t.suffix)) + ")",
		})
	}
	runs := beside(locktable.Runs)
	l.Parts = append(l.Parts, dialects.Part{ // version 0.1 had them in memory
		Table: runs, SQL: "ALTER TABLE " + runs + " ENGINE=InnoDB",
		Missing: "EXISTS (" + in("TABLES WHERE ENGINE = 'MEMORY' AND", runs) + ")",
	})
	l.Census = locktable.CensusSQL(beside(""))
	full, failed := sqltext.Literal(dialects.Value{Text: beside("")})
	if !strings.Contains(beside(""), "`.`") {
		full = "CONCAT('`', REPLACE(DATABASE(), '`', '``'), '`.', " + full + ")"
	}
	l.Find = locktable.LastSQL(beside(""), full)
	l.Seed = func(slots int) string { return seedSQL(beside(""), slots) }
	l.Together = func(statements ...string) string { return strings.Join(statements, ";\n") }
	return l, cmp.Or(err, failed)
}

// in finds a table in a view.
func in(from, quoted string) string {
	return "SELECT 1 FROM information_schema." + from + " " +
		sqltext.TableOf(quoted, "").Is("TABLE_SCHEMA", "TABLE_NAME")
}

// seedSQL inserts those slots that are absent, unless some of another number are there. It is one
// statement, so that a crash leaves all of them or none. It waits for nobody who holds a slot. What
// another client inserts meanwhile is ignored. The limit of MariaDB's on statements would end it.
func seedSQL(table string, slots int) string {
	return sqltext.OnMariaDB("max_statement_time=0") + fmt.Sprintf("INSERT IGNORE INTO %s (slot, slots)\n"+
		"WITH RECURSIVE d (d) AS (SELECT 0 UNION ALL SELECT d + 1 FROM d WHERE d < 127)\n"+
		"SELECT n, %d FROM (SELECT a.d * 16384 + b.d * 128 + c.d AS n FROM d AS a, d AS b, d AS c\n"+
		"  WHERE a.d * 16384 < %[2]d AND b.d * 128 < %[2]d) AS numbers\n"+
		"WHERE n < %[2]d AND NOT EXISTS (SELECT 1 FROM %[1]s AS present WHERE present.slot = n)\n"+
		"AND NOT EXISTS (SELECT 1 FROM %[1]s AS other WHERE other.slots <> %[2]d)", table, slots)
}
