package installation

import (
	"fmt"

	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// table is one to be created. One without the column is of an older version.
type table struct{ name, column, definition string }

// tablesOf are the lock table and those beside it.
func tablesOf(locks string) (tables []table, err error) {
	for _, t := range all {
		if t.name, err = sqltext.Beside(locks, t.name); err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// countClaims makes the row from which the tokens of new claims count on, with more than all tokens
// that were drawn from the epochs: claims of version 0.1 had those.
func countClaims(epochs, claims string) string {
	return fmt.Sprintf("INSERT IGNORE INTO %s (claim, holder, token, secret, since, until)\nSELECT %s, '', "+
		"COALESCE(MAX(epoch) + 1, 0) << %d, 0, '1970-01-01', '1970-01-01' FROM %s", claims, noClaim,
		fencing.CountBits, epochs)
}

const noClaim = "UNHEX(REPEAT('0', 64))"

// all has what is put behind the lock table's name in the place of names.
var all = []table{
	// The lock table. Every row states the number of slots: missing rows show, and a client with an
	// old number finds no row to lock instead of a wrong one. On Galera a lock changes taken.
	{"", "slot", ` (
    slot INT NOT NULL PRIMARY KEY,
    slots INT NOT NULL,
    taken BIGINT NOT NULL DEFAULT 0,
    CHECK (slot >= 0 AND slot < slots)
) ENGINE=InnoDB`},

	// What tokens are drawn from.
	{locktable.Epochs, "epoch", ` (
    epoch BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY
) ENGINE=InnoDB`},
	{locktable.Runs, "epoch", ` (
    server BIGINT UNSIGNED NOT NULL,
    epoch BIGINT NOT NULL PRIMARY KEY,
    start BIGINT UNSIGNED NOT NULL
) ENGINE=InnoDB`},

	// The rows of elections. Clients agree on the hash of a name. The name is for people.
	{locktable.Leaders, "hash", ` (
    id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    hash CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name VARCHAR(255) CHARACTER SET ascii NULL,
    part ENUM('seat', 'record', 'office') NOT NULL,
    identity VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    term BIGINT NOT NULL DEFAULT 0,
    since DATETIME(6) NULL COMMENT 'UTC',
    UNIQUE (hash, part)
) ENGINE=InnoDB`},

	// The markers. Sweep finds old ones by the index. Run is the number of the call that wrote the
	// marker last.
	{locktable.Markers, "marker", ` (
    marker BINARY(32) NOT NULL PRIMARY KEY,
    done_at DATETIME(6) NOT NULL COMMENT 'UTC',
    run BIGINT NOT NULL,
    KEY done_at (done_at)
) ENGINE=InnoDB`},

	// The claims. Sweep finds what ended long ago by the index. Holder is any bytes. A
	// claim is its holder's by the secret.
	{locktable.Claims, "claim", ` (
    claim BINARY(32) NOT NULL PRIMARY KEY,
    name TEXT CHARACTER SET ascii NULL,
    holder VARBINARY(255) NOT NULL,
    token BIGINT NOT NULL,
    secret BIGINT NOT NULL,
    since DATETIME(6) NOT NULL COMMENT 'UTC',
    until DATETIME(6) NOT NULL COMMENT 'UTC',
    KEY until (until)
) ENGINE=InnoDB`},

	// The rows of permits. Clients agree on the hash of a key. The name is for people. A row with a
	// negative number is no permit. It stands behind rows that were made together: at REPEATABLE
	// READ, who passes the last of them locks the gap in front of it, and not the end of the table,
	// where the rows of other semaphores are made.
	{locktable.Permits, "hash", ` (
    id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    hash CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name VARCHAR(255) CHARACTER SET ascii NULL,
    permit INT NOT NULL,
    UNIQUE (hash, permit)
) ENGINE=InnoDB`},
}
