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
func claimsOf(table string, galera bool) dialects.ClaimSQL {
	zero := "x'" + strings.Repeat("0", 64) + "'"
	line := func(number string) string {
		return "SELECT CONCAT_WS(' ', " + number + ", token, secret, " + micros("since") + ", " + micros("until") +
			", TIMESTAMPDIFF(MICROSECOND, " + now + ", until), HEX(claim), HEX(holder), HEX(IFNULL(name, ''))) FROM " +
			table + " "
	}
	former := func(column, condition, otherwise string) string {
		return column + " = IF(" + table + ".until > n.since" + condition + ", " + table + "." + column + ", " +
			otherwise + ")"
	}
	others := " AND " + table + ".holder <> n.holder"
	list := "JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (n FOR ORDINALITY, claim VARCHAR(64) PATH '$[0]', " +
		"holder VARCHAR(510) PATH '$[1]'))"
	skipping := sqltext.OnMariaDB(sqltext.SomeWait)
	since := " FROM " + table + " FORCE INDEX (until) WHERE claim <> " + zero + " AND until >= " + at
	sql := dialects.ClaimSQL{
		Table: table,
		Read:  line("1") + "WHERE claim = ?",
		List:  line("1") + "WHERE until > " + now + " ORDER BY until LIMIT 10000",
		Keep: line("holder = n.h AND token = n.t AND secret = n.s AND until > "+now) +
			"JOIN (SELECT ? AS c, ? AS d, ? AS h, ? AS t, ? AS s) AS n ON claim = n.c AND claim = n.d FOR UPDATE",
		End: "UPDATE " + table + " SET token = token WHERE claim = ?;\n" +
			"UPDATE " + table + " AS c JOIN (SELECT ? AS micros, ? AS holder, ? AS token, ? AS secret) AS n " +
			"SET c.until = IF(n.micros < 0, '1970-01-01', " + now + " + INTERVAL n.micros MICROSECOND) " +
			"WHERE c.claim = ? AND " +
			"c.holder = n.holder AND c.token = n.token AND c.secret = n.secret AND c.until > " + now + ";\n" +
			line("ROW_COUNT()") + "WHERE claim = ?",
		Take: "INSERT IGNORE INTO " + table + " (claim, holder, token, secret, since, until) SELECT n.claim, " +
			"n.holder, 0, 0, " +
			"'1970-01-01', '1970-01-01' FROM (SELECT ? AS claim, ? AS holder, ? AS makes, ? AS secret, ? AS " +
			"name, ? AS " +
			"micros) AS n JOIN " + table + " AS swept ON swept.claim = " + zero + " WHERE n.makes > 0 AND NOT EXISTS " +
			"(SELECT 1 FROM " + table + " AS former WHERE former.claim = n.claim);\n" +
			skipping + "INSERT INTO " + table + " (claim, holder, secret, name, token, since, until) " +
			"SELECT n.claim, n.holder, n.secret, n.name, swept.token + 1, n.since, n.since + INTERVAL n.micros " +
			"MICROSECOND FROM (SELECT ? AS claim, ? AS holder, ? AS secret, NULLIF(?, '') AS name, " + now +
			" AS since, ? AS micros) AS n JOIN " + table + " AS swept ON swept.claim = " + zero +
			" LEFT JOIN (SELECT claim FROM " + table + " WHERE claim = (SELECT seen.claim FROM " + table +
			" AS seen WHERE seen.claim = ? AND (seen.until <= " + now + " OR seen.holder = ?)) LIMIT 1 FOR " +
			"UPDATE SKIP " +
			"LOCKED) AS mine ON TRUE WHERE mine.claim IS NOT NULL ON DUPLICATE KEY UPDATE " +
			former("secret", "", "n.secret") + ", " +
			former("token", "", "IF("+table+".token = 0, swept.token, "+table+".token) + 1") + ", " +
			former("since", "", "n.since") + ", " + former("name", others, "n.name") + ", " +
			former("holder", "", "n.holder") + ", " +
			former("until", others, "n.since + INTERVAL n.micros MICROSECOND") + ";\n" +
			line("ROW_COUNT()") + "WHERE claim = ?",
		Look: skipping + "(SELECT n FROM " + list + " AS a STRAIGHT_JOIN " + table +
			" AS c ON c.claim = UNHEX(a.claim) WHERE c.until <= " + now + " OR c.holder = UNHEX(a.holder) FOR UPDATE " +
			"/*!80001 OF c */ SKIP LOCKED) UNION ALL (SELECT n FROM " + list + " AS b LEFT JOIN " + table +
			" AS d ON d.claim = UNHEX(b.claim) WHERE d.claim IS NULL)",
		// The first ended ones have the tokens of all that are deleted, or those stay.
		Sweep: "UPDATE " + table + " AS swept JOIN (SELECT MAX(token) AS token FROM (SELECT token FROM " + table +
			" FORCE INDEX (until) WHERE claim <> " + zero + " AND until < " + now + " ORDER BY until LIMIT 200) " +
			"AS old) AS n SET swept.token = n.token WHERE swept.claim = " + zero + " AND n.token > swept.token;\n" +
			skipping + "DELETE gone FROM (SELECT token FROM " + table + " WHERE claim = " + zero + " LIMIT 1) AS " +
			"swept " +
			"STRAIGHT_JOIN (SELECT claim" + since + " AND until < " + now +
			" - INTERVAL ? MICROSECOND ORDER BY until LIMIT ? FOR " +
			"UPDATE SKIP LOCKED) AS old STRAIGHT_JOIN " + table + " AS gone FORCE INDEX (PRIMARY) ON gone.claim = " +
			"old.claim AND gone.token <= swept.token;\n" +
			"SELECT CONCAT_WS(' ', ROW_COUNT(), (SELECT " + micros("MIN(until)") + since + "))",
	}
	if galera { // the lock of the row becomes one of the cluster
		sql.Keep = sqltext.OnMariaDB("wsrep_trx_fragment_unit='rows'", "wsrep_trx_fragment_size=1") +
			"UPDATE " + table + " SET since = since + INTERVAL 1 MICROSECOND WHERE claim = ?;\n" +
			strings.Replace(strings.Replace(sql.Keep,
				" AND claim = n.d", "", 1), "? AS c, ? AS d", "? AS c", 1)
	}
	return sql
}
