package kinds

import (
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

func permitsOf(table, queue string) dialects.PermitSQL {
	fill := func(text string) string { return of(table, strings.ReplaceAll(text, "QUEUE", queue)) }
	own := "FROM {} WHERE hash = $1 AND permit "
	return dialects.PermitSQL{
		Table: table,
		// The queue is read with a column that is in no index: who has it has locked the row alone.
		Look: fill("(SELECT id " + own + ">= 0 AND (permit < $2 OR permit = QUEUE) ORDER BY permit LIMIT 1001) UNION " +
			"ALL (SELECT IF(name = '', '', 'free') " + own + "= QUEUE " + sqltext.Sharing + sqltext.SkipLocked + ")"),
		Make: fill("INSERT IGNORE INTO {} (hash, permit, name) SELECT $1, IF(list.i > own.n, QUEUE, list.i - 1), " +
			"NULLIF($3, '') FROM (SELECT $2 AS n) AS own, JSON_TABLE(CONCAT('[0', REPEAT(',0', own.n), ']'), '$[*]' " +
			"COLUMNS (i FOR ORDINALITY)) AS list"),
	}
}
