package kinds

import (
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

func permitsOf(table, queue string) dialects.PermitSQL {
	own := "FROM {} WHERE hash = $1 AND permit "
	return dialects.PermitSQL{
		Table: table,
		// The queue is read with a column that is in no index: who has it has locked the row alone.
		Look: reading(table, "(SELECT id "+own+">= 0 AND (permit < $2 OR permit = "+queue+") ORDER BY permit "+
			"LIMIT 1001) "+
			"UNION ALL (SELECT IF(name = '', '', 'free') "+own+"= "+queue+" "+sqltext.Sharing+sqltext.SkipLocked+")"),
		Make: of(table, "INSERT IGNORE INTO {} (hash, permit, name) SELECT $1, IF(list.i > own.n, "+queue+", "+
			"list.i - 1), NULLIF($3, '') FROM (SELECT $2 AS n) AS own, JSON_TABLE(CONCAT('[0', REPEAT(',0', own.n), "+
			"']'), '$[*]' COLUMNS (i FOR ORDINALITY)) AS list"),
	}
}
