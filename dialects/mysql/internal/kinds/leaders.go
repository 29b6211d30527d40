package kinds

import (
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

func leadersOf(table string) dialects.LeadersSQL {
	return dialects.LeadersSQL{
		Table: table,
		Rows: of(table, "INSERT IGNORE INTO {} (hash, name, part) SELECT $1, NULLIF($2, ''), parts.part FROM "+
			"(SELECT 'seat' AS part UNION ALL SELECT 'record' UNION ALL SELECT 'office') AS parts WHERE NOT EXISTS "+
			"(SELECT 1 FROM {} AS own WHERE own.hash = $1 AND own.part = parts.part);\n"+
			"SELECT CONCAT(seat.id, ' ', office.id) FROM {} AS seat JOIN {} AS office ON office.hash = seat.hash AND "+
			"office.part = 'office' WHERE seat.hash = $1 AND seat.part = 'seat'"),
		// Assignments are made from left to right: the identity is the former leader's.
		Write: of(table, "UPDATE {} SET term = IF(LAST_INSERT_ID(IF(identity IS NULL, 2, 1)) > 0, $1, 0), "+
			"identity = $2, since = NOW WHERE hash = $3 AND part = 'record' AND term < $1;\n"+
			"SELECT IF(LAST_INSERT_ID() = 2, 'resigned', 'lost') FROM DUAL WHERE ROW_COUNT() = 1"),
		Resign: of(table, "UPDATE {} SET identity = NULL WHERE hash = $1 AND part = 'record' AND term = $2;\n"+
			"SELECT ROW_COUNT()"),
		// The office is read with a column that is in no index: who has it has locked the row
		// alone. The record is not looked up by a unique key: that would be read before the
		// statement begins.
		Leader: reading(table, "(SELECT IF(term < 0, '', 'free') FROM {} WHERE hash = $1 AND part = 'office' "+
			sqltext.Sharing+sqltext.SkipLocked+") UNION ALL (SELECT CONCAT_WS(' ', IF("+sqltext.Writable+", 'writes', "+
			"'reads'), term, "+micros("since")+", HEX(identity)) FROM {} WHERE hash = $1 AND CONCAT(part) = 'record')"),
	}
}
