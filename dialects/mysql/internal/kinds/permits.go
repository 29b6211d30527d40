package kinds

import (
	"strconv"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

func permitsOf(table string) dialects.PermitSQL {
	queue := strconv.Itoa(locktable.QueuePermit)
	own := " FROM " + table + " FORCE INDEX (PRIMARY) WHERE id = ? AND hash = ?"
	return dialects.PermitSQL{
		Table: table,
		Find: "SELECT id FROM " + table + " WHERE hash = ? AND permit >= 0 AND (permit < ? OR permit = " + queue +
			") ORDER BY permit LIMIT 1001",
		Make: "INSERT IGNORE INTO " + table + " (hash, permit, name) SELECT own.hash, IF(list.i > own.n, " + queue +
			", list.i - 1), shown.name FROM (SELECT ? AS hash, ? AS n) AS own, JSON_TABLE(CONCAT('[0', " +
			"REPEAT(',0', own.n), ']'), '$[*]' COLUMNS (i FOR ORDINALITY)) AS list, " +
			"(SELECT NULLIF(?, '') AS name) AS shown",
		Look: sqltext.OnMariaDB(sqltext.SomeWait) + "(SELECT 'is'" + own + ") UNION ALL (SELECT 'free'" + own + " " +
			sqltext.Sharing + sqltext.SkipLocked + ")",
	}
}
