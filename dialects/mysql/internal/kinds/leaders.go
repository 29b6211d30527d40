package kinds

import (
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

func leadersOf(table string) dialects.LeadersSQL {
	rows := "SELECT CONCAT(seat.id, ' ', office.id) FROM " + table + " AS seat JOIN " + table + " AS office ON " +
		"office.hash = seat.hash AND office.part = 'office' WHERE seat.hash = ? AND seat.part = 'seat'"
	return dialects.LeadersSQL{
		Table: table,
		Rows:  rows,
		Make: "INSERT IGNORE INTO " + table + " (hash, name, part) SELECT given.hash, NULLIF(given.name, ''), " +
			"parts.part FROM (SELECT ? AS hash, ? AS name) AS given CROSS JOIN " +
			"(SELECT 'seat' AS part UNION ALL SELECT 'record' " +
			"UNION ALL SELECT 'office') AS parts;\n" + rows,
		// Assignments are made from left to right: the identity is the former leader's.
		Write: "UPDATE " + table + " SET term = IF(LAST_INSERT_ID(IF(identity IS NULL, 2, 1)) > 0, ?, 0), " +
			"identity = ?, since = UTC_TIMESTAMP(6) WHERE hash = ? AND part = 'record' AND term < ?;\n" +
			"SELECT IF(LAST_INSERT_ID() = 2, 'resigned', 'lost') FROM DUAL WHERE ROW_COUNT() = 1",
		Resign: "UPDATE " + table + " SET identity = NULL WHERE hash = ? AND part = 'record' AND term = ?;\n" +
			"SELECT ROW_COUNT()",
		// The office is read with a column that is in no index: who has it has locked the row
		// alone. The record is not looked up by a unique key: that would be read before the
		// statement begins.
		Leader: "(SELECT IF(term < 0, '', 'free') FROM " + table +
			" WHERE hash = ? AND part = 'office' " + sqltext.Sharing + sqltext.SkipLocked + ") UNION ALL (SELECT " +
			"CONCAT_WS(' ', IF(" + sqltext.Writable + ", 'writes', 'reads'), term, TIMESTAMPDIFF(MICROSECOND, " +
			"'1970-01-01', since), HEX(identity)) FROM " + table + " WHERE hash = ? AND CONCAT(part) = 'record')",
	}
}
