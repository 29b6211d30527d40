package kinds

import (
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

func permits(table string) dialects.Permits {
	own := " FROM " + table + " FORCE INDEX (PRIMARY) WHERE id = ? AND hash = ?"
	return dialects.Permits{
		Table: table,
		Find:  "SELECT id FROM " + table + " WHERE hash = ? AND FIND_IN_SET(permit, ?) ORDER BY permit LIMIT 1001",
		Make: "INSERT IGNORE INTO " + table + " (hash, permit, name) SELECT own.hash, list.permit, shown.name " +
			"FROM (SELECT ? AS hash) AS own, " +
			"JSON_TABLE(CONCAT('[', ?, ']'), '$[*]' COLUMNS (permit INT PATH '$')) AS list, " +
			"(SELECT NULLIF(?, '') AS name) AS shown",
		Look: sqltext.OnMariaDB(sqltext.SomeWait) + "(SELECT 'is'" + own + ") UNION ALL (SELECT 'free'" + own + " " +
			sqltext.Sharing + sqltext.SkipLocked + ")",
	}
}
