// Package kinds has the SQL of the kinds of locks that are clients of the others, as texts.
package kinds

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// argument stands in a text in front of the number of one. No name of a table has it.
const argument = "\x00"

// at is a time of that many microseconds since the Unix epoch.
func at(micros string) string {
	return "(TIMESTAMP '1970-01-01 00:00:00' + INTERVAL " + micros + " MICROSECOND)"
}

func micros(time string) string { return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', " + time + ")" }

// of is a query about the table {}, with $1 and so on for its arguments; $[ begins a path of JSON.
// NOW is the same in all of a statement: the time at which it began.
func of(table, text string) dialects.Query {
	text = strings.NewReplacer("$[", "$[", "$", argument, "{}", table, "NOW", "UTC_TIMESTAMP(6)").Replace(text)
	return dialects.Query{SQL: text, Table: table}
}

func reading(table, text string) dialects.Query {
	q := of(table, text)
	q.Reads = true
	return q
}

// sweep deletes rows, known by their key, whose time is long ago: see dialects.OnceSQL. Each part
// names its index: else the server would read, and lock, all of a small table.
func sweep(table, key, time string) dialects.Query {
	old := " FROM {} FORCE INDEX (" + time + ") WHERE " + time + " >= " + at("$1")
	return of(table, sqltext.OnMariaDB(sqltext.SomeWait)+"DELETE gone FROM (SELECT "+key+" AS it"+old+" AND "+time+
		" < NOW - INTERVAL $2 MICROSECOND ORDER BY "+time+" LIMIT $3 FOR UPDATE SKIP LOCKED) AS old "+
		"STRAIGHT_JOIN {} AS gone FORCE INDEX (PRIMARY) ON gone."+key+" = old.it;\n"+
		"SELECT CONCAT_WS(' ', ROW_COUNT(), (SELECT "+micros("MIN("+time+")")+old+"))")
}

// Of are the texts for a lock table.
func Of(table string, galera bool) (k dialects.Kinds, err error) {
	beside, err := sqltext.Beside(table)
	ping := "SELECT IF(" + sqltext.Writable + ", '', CONCAT('the server ', @@hostname, ':', @@port, ' is read_only, " +
		"and takes no writes')) FROM {} LIMIT 1"
	return dialects.Kinds{
		Ping: reading(table, ping), Certified: galera,
		Once: onceOf(beside(locktable.Markers)), Claims: claimsOf(beside(locktable.Claims), galera),
		Permits: permitsOf(beside(locktable.Permits), strconv.Itoa(locktable.QueuePermit)),
		Leaders: leadersOf(beside(locktable.Leaders)),
	}, err
}

// StatementsOf are those of a query, with its arguments as literals.
func StatementsOf(q dialects.Query) []string {
	var with []string
	for i, arg := range q.Args {
		literal := ""
		switch arg := arg.(type) {
		case int64:
			literal = strconv.FormatInt(arg, 10)
		case []byte:
			literal = fmt.Sprintf("x'%x'", arg)
		case string:
			literal, _ = sqltext.Literal(dialects.Value{Text: arg, Binary: !utf8.ValidString(arg)})
		}
		with = append(with, argument+strconv.Itoa(i+1), literal)
	}
	statements := strings.Split(q.SQL, ";\n")
	for i, text := range statements {
		statements[i] = strings.NewReplacer(with...).Replace(text)
	}
	return statements
}

// onceOf has a marker that exists found by its primary key, so that no gap is locked at REPEATABLE
// READ. The count of rows tells nothing: with clientFoundRows it is 1 in any case. Hence the error
// of Mark, in each sql_mode, and the number of First.
func onceOf(table string) dialects.OnceSQL {
	old := "done_at < VALUES(done_at) - INTERVAL MOD(" + micros("VALUES(done_at)") +
		", NULLIF($3, 0)) MICROSECOND"
	insert := func(values string) string {
		return "INSERT INTO {} (marker, done_at, run) VALUES ($1, " + values + ") ON DUPLICATE KEY UPDATE "
	}
	return dialects.OnceSQL{
		Table: table,
		Look: reading(table, "SELECT CONCAT_WS(' ', "+micros("NOW")+", (SELECT "+micros("done_at")+" FROM {} WHERE "+
			"marker = $1))"),
		Mark: of(table, insert(at("$2")+", 0")+"done_at = IF("+old+", VALUES(done_at), "+
			"(SELECT 1 UNION ALL SELECT 2))"),
		Forget: of(table, "DELETE FROM {} WHERE marker = $1;\nSELECT 1"), // a query behind a lock has rows
		First: of(table, insert("NOW, $2")+"run = IF("+old+", VALUES(run), run), done_at = IF("+old+
			", VALUES(done_at), done_at);\nSELECT run FROM {} WHERE marker = $1 AND run = $2 FOR UPDATE"),
		Sweep: sweep(table, "marker", "done_at"),
	}
}

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
		// alone. By a unique key the record would be read before the statement begins.
		Leader: reading(table, "(SELECT IF(term < 0, '', 'free') FROM {} WHERE hash = $1 AND part = 'office' "+
			sqltext.Sharing+sqltext.SkipLocked+") UNION ALL (SELECT CONCAT_WS(' ', IF("+sqltext.Writable+", 'writes', "+
			"'reads'), term, "+micros("since")+", HEX(identity)) FROM {} WHERE hash = $1 AND CONCAT(part) = 'record')"),
	}
}

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
