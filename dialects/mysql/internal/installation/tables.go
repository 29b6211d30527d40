package installation

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// Layout is that of a lock table. CREATE TABLE commits at once, and waits for other clients that
// create the same.
func Layout(locks string) (l dialects.Layout, err error) {
	quoted, err := sqltext.QuoteTable(locks)
	table := func(suffix, definition string) dialects.Part {
		name, _ := sqltext.Beside(locks, suffix)
		return dialects.Part{
			Table: name, Missing: "NOT " + isThere("TABLES", name, ""),
			SQL: "CREATE TABLE IF NOT EXISTS " + name + definition,
		}
	}
	named := func(suffix, definition string) dialects.Part { // version 0.1 had no hashes
		part := table(suffix, definition)
		part.Former = "NOT " + isThere("COLUMNS", part.Table, " AND COLUMN_NAME = 'hash'")
		return part
	}
	runs, _ := sqltext.Beside(locks, locktable.Runs)
	l.Parts = []dialects.Part{
		// Every row states the number of slots: missing rows show, and a client with an old number
		// finds no row to lock instead of a wrong one. On Galera a lock changes taken.
		table("", ` (
    slot INT NOT NULL PRIMARY KEY,
    slots INT NOT NULL,
    taken BIGINT NOT NULL DEFAULT 0,
    CHECK (slot >= 0 AND slot < slots)
) ENGINE=InnoDB`),

		// What tokens are drawn from. Version 0.1 had the runs in memory.
		table(locktable.Epochs, ` (
    epoch BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY
) ENGINE=InnoDB`),
		table(locktable.Runs, ` (
    server BIGINT UNSIGNED NOT NULL,
    epoch BIGINT NOT NULL PRIMARY KEY,
    start BIGINT UNSIGNED NOT NULL
) ENGINE=InnoDB`),
		{
			Table: runs, Missing: isThere("TABLES", runs, " AND ENGINE = 'MEMORY'"),
			SQL: "ALTER TABLE " + runs + " ENGINE=InnoDB",
		},

		// The rows of elections. Clients agree on the hash of a name. The name is for people.
		named(locktable.Leaders, ` (
    id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    hash CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name VARCHAR(255) CHARACTER SET ascii NULL,
    part ENUM('seat', 'record', 'office') NOT NULL,
    identity VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    term BIGINT NOT NULL DEFAULT 0,
    since DATETIME(6) NULL COMMENT 'UTC',
    UNIQUE (hash, part)
) ENGINE=InnoDB`),

		// The markers. Sweep finds old ones by the index. Run is the number of the call that wrote
		// the marker last.
		table(locktable.Markers, ` (
    marker BINARY(32) NOT NULL PRIMARY KEY,
    done_at DATETIME(6) NOT NULL COMMENT 'UTC',
    run BIGINT NOT NULL,
    KEY done_at (done_at)
) ENGINE=InnoDB`),

		// The claims. Sweep finds what ended long ago by the index. Holder is any bytes. A claim
		// is its holder's by the secret.
		table(locktable.Claims, ` (
    claim BINARY(32) NOT NULL PRIMARY KEY,
    name TEXT CHARACTER SET ascii NULL,
    holder VARBINARY(255) NOT NULL,
    token BIGINT NOT NULL,
    secret BIGINT NOT NULL,
    since DATETIME(6) NOT NULL COMMENT 'UTC',
    until DATETIME(6) NOT NULL COMMENT 'UTC',
    KEY until (until)
) ENGINE=InnoDB`),

		// The rows of permits. Clients agree on the hash of a key. The name is for people. A row
		// with a negative number is no permit. It stands behind rows that were made together: at
		// REPEATABLE READ, who passes the last of them locks the gap in front of it, and not the
		// end of the table, where the rows of other semaphores are made.
		named(locktable.Permits, ` (
    id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    hash CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name VARCHAR(255) CHARACTER SET ascii NULL,
    permit INT NOT NULL,
    UNIQUE (hash, permit)
) ENGINE=InnoDB`),
	}
	l.Census = locktable.CensusSQL(quoted, "''", false)
	full, failed := sqltext.Literal(dialects.Value{Text: quoted})
	if !strings.Contains(quoted, "`.`") {
		full = "CONCAT('`', REPLACE(DATABASE(), '`', '``'), '`.', " + full + ")"
	}
	l.Find = locktable.CensusSQL(quoted, full, true)
	l.Seed = func(slots int) string { return seedSQL(quoted, slots) }
	l.Together = func(statements ...string) string { return strings.Join(statements, ";\n") }
	return l, cmp.Or(err, failed)
}

// isThere is a condition on a table, or a column of it. The bare columns let the server look it up.
func isThere(view, quoted, and string) string {
	of := sqltext.TableOf(quoted, "")
	database, name := "DATABASE()", sqltext.Table{Name: of.Name}.Is("''", "TABLE_NAME")
	if of.Database != "" {
		database, _ = sqltext.Literal(dialects.Value{Text: of.Database})
	}
	return "EXISTS (SELECT 1 FROM information_schema." + view + " WHERE TABLE_SCHEMA = " + database + " AND " + name +
		and + ")"
}

// seedSQL inserts those slots that are absent, unless some of another number are there. It is one
// statement, so that a crash leaves all of them or none. It waits for nobody who holds a slot. What
// another client inserts meanwhile is ignored. The limit of MariaDB's on statements would end it.
func seedSQL(table string, slots int) string {
	digits := "SELECT 0 AS d"
	for digit := 1; digit < 16; digit++ {
		digits += " UNION ALL SELECT " + strconv.Itoa(digit)
	}
	number, from, factor := "d0.d", "("+digits+") AS d0", 16
	for place := 1; factor < slots; place++ {
		number += fmt.Sprintf(" + %d * d%d.d", factor, place)
		from += fmt.Sprintf("\n  CROSS JOIN (%s) AS d%d", digits, place)
		factor *= 16
	}
	return sqltext.OnMariaDB("max_statement_time=0") + fmt.Sprintf("INSERT IGNORE INTO %s (slot, slots)\n"+
		"SELECT n, %d FROM (SELECT %s AS n\n  FROM %s) AS numbers\n"+
		"WHERE n < %[2]d AND NOT EXISTS (SELECT 1 FROM %[1]s AS present WHERE present.slot = n)\n"+
		"AND NOT EXISTS (SELECT 1 FROM %[1]s AS other WHERE other.slots <> %[2]d)", table, slots, number, from)
}
