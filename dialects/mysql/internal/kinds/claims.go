package kinds

import (
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// claimsOf has the clock of a statement stand still from its begin on. So what waits is a statement
// of its own, in front. The result of each SELECT inside that locks is limited: the server merges
// it with the one outside otherwise, and forgets the lock. Assignments are made from left to right,
// and with SIMULTANEOUS_ASSIGNMENT of MariaDB all at once: the conditions mean the same in both. A
// row of the same holder is changed in any case, so ROW_COUNT() tells, also with clientFoundRows.
//
// Take makes a new row ended, with token 0, in front. Its token then is above what Sweep has
// deleted before, however often the row has come and gone meanwhile.
func claimsOf(table string, galera bool) dialects.ClaimSQL {
	line := func(number, where string) string {
		return "SELECT CONCAT_WS(' ', " + number + ", token, secret, " + micros("since") + ", " + micros("until") +
			", TIMESTAMPDIFF(MICROSECOND, NOW, until), HEX(claim), HEX(holder), HEX(IFNULL(name, ''))) FROM {} " + where
	}
	list := "JSON_TABLE(CONVERT($1 USING utf8mb4), '$[*]' COLUMNS (n FOR ORDINALITY, claim VARCHAR(64) PATH '$[0]', " +
		"holder VARCHAR(510) PATH '$[1]'))"
	ended := " FROM {} FORCE INDEX (until) WHERE claim <> SWEPT AND until >= " + at1
	fill := func(text string) string {
		text = strings.NewReplacer("NOW", now, "SKIPPING", sqltext.OnMariaDB(sqltext.SomeWait),
			"SWEPT", "x'"+strings.Repeat("0", 64)+"'").Replace(text)
		return of(table, text)
	}
	sql := dialects.ClaimSQL{
		Table: table,
		Read:  fill(line("1", "WHERE claim = $1")),
		List:  fill(line("1", "WHERE until > NOW ORDER BY until LIMIT 10000")),
		Keep:  fill(line("1", "WHERE claim = $1 FOR UPDATE")),
		End:   fill("UPDATE {} SET until = " + at2 + " WHERE claim = $1 AND secret = $3"),
		Take: fill("INSERT IGNORE INTO {} (claim, holder, token, secret, since, until) SELECT $1, '', 0, 0, " +
			"'1970-01-01', '1970-01-01' FROM {} AS swept WHERE swept.claim = SWEPT AND NOT EXISTS " +
			"(SELECT 1 FROM {} AS former WHERE former.claim = $1);\n" +
			"SKIPPING INSERT INTO {} (claim, holder, secret, name, token, since, until) SELECT mine.claim, $2, $3, " +
			"NULLIF($4, ''), swept.token, NOW, NOW + INTERVAL $5 MICROSECOND FROM {} AS swept LEFT JOIN " +
			"(SELECT claim FROM {} WHERE claim = (SELECT seen.claim FROM {} AS seen WHERE seen.claim = $1 AND " +
			"(seen.until <= NOW OR seen.holder = $2)) LIMIT 1 FOR UPDATE SKIP LOCKED) AS mine ON TRUE " +
			"WHERE swept.claim = SWEPT AND mine.claim IS NOT NULL ON DUPLICATE KEY UPDATE " +
			"token = IF({}.token = 0, VALUES(token), {}.token) + ({}.until <= NOW), " +
			"secret = IF({}.until > NOW, {}.secret, VALUES(secret)), " +
			"since = IF({}.until > NOW, {}.since, NOW), " +
			"name = VALUES(name), holder = VALUES(holder), until = VALUES(until);\n" +
			line("ROW_COUNT()", "WHERE claim = $1")),
		Look: fill("SKIPPING (SELECT n FROM " + list + " AS a STRAIGHT_JOIN {} AS c ON c.claim = UNHEX(a.claim) " +
			"WHERE c.until <= NOW OR c.holder = UNHEX(a.holder) FOR UPDATE /*!80001 OF c */ SKIP LOCKED) UNION ALL " +
			"(SELECT n FROM " + list + " AS b LEFT JOIN {} AS d ON d.claim = UNHEX(b.claim) WHERE d.claim IS NULL)"),
		// The first ended ones have the tokens of all that are deleted, or those stay.
		Sweep: fill("UPDATE {} AS swept JOIN (SELECT MAX(token) AS token FROM (SELECT token FROM {} FORCE INDEX " +
			"(until) WHERE claim <> SWEPT AND until < NOW ORDER BY until LIMIT 200) AS old) AS n " +
			"SET swept.token = n.token WHERE swept.claim = SWEPT AND n.token > swept.token;\n" +
			"SKIPPING DELETE gone FROM (SELECT token FROM {} WHERE claim = SWEPT LIMIT 1) AS swept STRAIGHT_JOIN " +
			"(SELECT claim" + ended + " AND until < NOW - INTERVAL $2 MICROSECOND ORDER BY until LIMIT $3 FOR " +
			"UPDATE SKIP " +
			"LOCKED) AS old STRAIGHT_JOIN {} AS gone FORCE INDEX (PRIMARY) ON gone.claim = old.claim AND " +
			"gone.token <= swept.token;\nSELECT CONCAT_WS(' ', ROW_COUNT(), (SELECT " + micros("MIN(until)") + ended +
			"))"),
	}
	if galera { // the lock of the row becomes one of the cluster
		sql.Keep = fill(sqltext.OnMariaDB("wsrep_trx_fragment_unit='rows'", "wsrep_trx_fragment_size=1")+
			"UPDATE {} SET since = since + INTERVAL 1 MICROSECOND WHERE claim = $1;\n") + sql.Keep
	}
	return sql
}
