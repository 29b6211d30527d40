package kinds

import (
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// claimsOf has the clock of a statement stand still from its begin on. So what waits is a statement
// of its own, in front. The result of each SELECT inside that locks is limited: the server merges
// it with the one outside otherwise, and forgets the lock. The inner condition of Take keeps it
// from locking what another has, the outer one is that of the row as it is locked. Take makes a row
// that is missing in front, as one that has ended. A row of the same holder is changed in any case,
// so ROW_COUNT() tells, also with clientFoundRows.
func claimsOf(table string, galera bool) dialects.ClaimSQL {
	line := func(number, where string) string {
		return "SELECT CONCAT_WS(' ', " + number + ", token, secret, " + micros("since") + ", " + micros("until") +
			", TIMESTAMPDIFF(MICROSECOND, NOW, until), HEX(claim), HEX(holder), HEX(IFNULL(name, ''))) FROM {} " + where
	}
	list := "JSON_TABLE(CONVERT($1 USING utf8mb4), '$[*]' COLUMNS (n FOR ORDINALITY, claim VARCHAR(64) PATH '$[0]', " +
		"holder VARCHAR(510) PATH '$[1]'))"
	skipping := sqltext.OnMariaDB(sqltext.SomeWait)
	mine := "WHERE claim = $1 AND holder = $2 AND token = $3 AND $4 IN (secret, 0) AND "
	end := "SELECT " + micros("until") + " FROM {} " + mine
	sql := dialects.ClaimSQL{
		Table: table,
		Read:  reading(table, line("1", "WHERE claim = $1 AND until > NOW")),
		List:  reading(table, line("1", "WHERE until > NOW ORDER BY until LIMIT 10000")),
		Keep:  of(table, end+"until > NOW FOR UPDATE"),
		// No row is changed where the end is moved to where it was.
		Move: of(table, "UPDATE {} SET until = IF($5 > 0, NOW + INTERVAL $5 MICROSECOND, "+at("0")+") "+mine+
			"until > NOW;\n"+end+"(ROW_COUNT() > 0 OR until > NOW)"),
		Take: of(table, "INSERT IGNORE INTO {} (claim, holder, token, secret, since, until) SELECT $1, '', "+
			micros("NOW")+", 0, '1970-01-01', '1970-01-01' FROM (SELECT 1) AS new WHERE NOT EXISTS (SELECT 1 FROM {} "+
			"AS former WHERE former.claim = $1);\n"+
			skipping+"INSERT INTO {} (claim, holder, name, token, secret, since, until) SELECT claim, $2, "+
			"NULLIF($4, ''), token + 1 - held, IF(held, secret, $3), IF(held, since, NOW), NOW + INTERVAL $5 "+
			"MICROSECOND FROM (SELECT claim, token, secret, since, until > NOW AS held FROM {} WHERE claim = (SELECT "+
			"seen.claim FROM {} AS seen WHERE seen.claim = $1 AND (seen.until <= NOW OR seen.holder = $2)) AND "+
			"(until <= NOW OR holder = $2) LIMIT 1 FOR UPDATE SKIP LOCKED) AS mine ON DUPLICATE KEY UPDATE "+
			"holder = VALUES(holder), name = VALUES(name), token = VALUES(token), secret = VALUES(secret), "+
			"since = VALUES(since), until = VALUES(until);\n"+
			line("ROW_COUNT()", "WHERE claim = $1")),
		Look: of(table, skipping+"(SELECT n FROM "+list+" AS a STRAIGHT_JOIN {} AS c ON c.claim = UNHEX(a.claim) "+
			"WHERE c.until <= NOW OR c.holder = UNHEX(a.holder) FOR UPDATE /*!80001 OF c */ SKIP LOCKED) UNION ALL "+
			"(SELECT n FROM "+list+" AS b LEFT JOIN {} AS d ON d.claim = UNHEX(b.claim) WHERE d.claim IS NULL)"),
		Sweep: sweep(table, "claim", "until"),
	}
	if galera { // the lock of the row becomes one of the cluster
		fragment := sqltext.OnMariaDB("wsrep_trx_fragment_unit='rows'", "wsrep_trx_fragment_size=1")
		sql.Move.SQL = fragment + sql.Move.SQL
		change := of(table, "UPDATE {} SET since = since + INTERVAL 1 MICROSECOND WHERE claim = $1;\n").SQL
		sql.Keep.SQL = fragment + change + sql.Keep.SQL
	}
	return sql
}
