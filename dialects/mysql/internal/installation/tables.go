// Package installation has the lock table and those beside it, as data, and the SQL of the kinds of
// locks: texts, and no branches.
package installation

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/internal/locktable"
)

// tables are the lock table and those beside it. The hashes are new since version 0.1. Nothing else
// asks for columns, which some servers are slow to find.
var tables = []struct{ suffix, from, definition string }{
	// Every row states the number of slots: missing rows show, and a client with an old number
	// finds no row to lock instead of a wrong one. On Galera a lock changes taken.
	{"", "TABLES WHERE", ` (
    slot INT NOT NULL PRIMARY KEY,
    slots INT NOT NULL,
    taken BIGINT NOT NULL DEFAULT 0,
    CHECK (slot >= 0 AND slot < slots)
) ENGINE=InnoDB`},

	// What tokens are drawn from.
	{locktable.Epochs, "TABLES WHERE", ` (
    epoch BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY
) ENGINE=InnoDB`},
	{locktable.Runs, "TABLES WHERE", ` (
    server BIGINT UNSIGNED NOT NULL,
    epoch BIGINT NOT NULL PRIMARY KEY,
    start BIGINT UNSIGNED NOT NULL
) ENGINE=InnoDB`},

	// The rows of elections. Clients agree on the hash of a name. The name is for people.
	{locktable.Leaders, "COLUMNS WHERE COLUMN_NAME = 'hash' AND", ` (
    id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    hash CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name VARCHAR(255) CHARACTER SET ascii NULL,
    part ENUM('seat', 'record', 'office') NOT NULL,
    identity VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    term BIGINT NOT NULL DEFAULT 0,
    since DATETIME(6) NULL COMMENT 'UTC',
    UNIQUE (hash, part)
) ENGINE=InnoDB`},

	// The markers. Sweep finds old ones by the index. Run is the number of the last that wrote.
	{locktable.Markers, "TABLES WHERE", ` (
    marker BINARY(32) NOT NULL PRIMARY KEY,
    done_at DATETIME(6) NOT NULL COMMENT 'UTC',
    run BIGINT NOT NULL,
    answer LONGBLOB NULL,
    KEY done_at (done_at)
) ENGINE=InnoDB`},

	// The claims. Sweep finds old ones by the index. Holder is any bytes, the secret proves it.
	{locktable.Claims, "TABLES WHERE", ` (
    claim BINARY(32) NOT NULL PRIMARY KEY,
    name TEXT CHARACTER SET ascii NULL,
    holder VARBINARY(255) NOT NULL,
    token BIGINT NOT NULL,
    secret BIGINT NOT NULL,
    since DATETIME(6) NOT NULL COMMENT 'UTC',
    until DATETIME(6) NOT NULL COMMENT 'UTC',
    KEY until (until)
) ENGINE=InnoDB`},

	// The rows of permits, with hash and name likewise. A row with a negative number is no permit.
	// It stands behind rows that were made together: at REPEATABLE READ, who passes the last of
	// them locks the gap in front of it, and not the end of the table, where others are made.
	{locktable.Permits, "COLUMNS WHERE COLUMN_NAME = 'hash' AND", ` (
    id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    hash CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name VARCHAR(255) CHARACTER SET ascii NULL,
    permit INT NOT NULL,
    UNIQUE (hash, permit)
) ENGINE=InnoDB`},
}

// Layout is that of a lock table. CREATE TABLE commits at once, and waits for others who create it.
func Layout(locks string) (l dialects.Layout, err error) {
	beside, err := server.Beside(locks)
	for _, t := range tables {
		l.Parts = append(l.Parts, dialects.Part{
			Table: beside(t.suffix), SQL: "CREATE TABLE IF NOT EXISTS " + beside(t.suffix) + t.definition,
			Missing: "NOT EXISTS (" + in(t.from, beside(t.suffix)) + ")",
		})
	}
	runs := beside(locktable.Runs)
	l.Parts = append(l.Parts, dialects.Part{ // version 0.1 had them in memory
		Table: runs, SQL: "ALTER TABLE " + runs + " ENGINE=InnoDB",
		Missing: "EXISTS (" + in("TABLES WHERE ENGINE = 'MEMORY' AND", runs) + ")",
	})
	markers := beside(locktable.Markers)
	answers := in("COLUMNS WHERE COLUMN_NAME = 'answer' AND", markers)
	add, odd := server.Literal(dialects.Value{Text: "ALTER TABLE " + markers + " ADD COLUMN answer LONGBLOB"})
	l.Parts = append(l.Parts, dialects.Part{ // version 0.1 had none; no server but MariaDB has ADD IF NOT EXISTS
		Table: markers, Missing: "NOT EXISTS (" + answers + ")",
		SQL: "SET @txlock = IF(EXISTS (" + answers + "), 'DO 0', " + add + ");\nPREPARE txlock FROM @txlock;\n" +
			"EXECUTE txlock;\nDEALLOCATE PREPARE txlock",
	})
	l.Census = locktable.CensusSQL(beside(""))
	full, failed := server.Literal(dialects.Value{Text: beside("")})
	if !strings.Contains(beside(""), "`.`") {
		full = "CONCAT('`', REPLACE(DATABASE(), '`', '``'), '`.', " + full + ")"
	}
	l.Find = locktable.LastSQL(beside(""), full)
	l.Seed = func(slots int) string { return seedSQL(beside(""), slots) }
	l.Together = func(statements ...string) string { return strings.Join(statements, ";\n") }
	return l, cmp.Or(err, odd, failed)
}

// in finds a table in a view.
func in(from, quoted string) string {
	return "SELECT 1 FROM information_schema." + from + " " +
		server.TableOf(quoted, "").Is("TABLE_SCHEMA", "TABLE_NAME")
}

// seedSQL inserts those slots that are absent, unless some of another number are there. It is one
// statement, so that a crash leaves all of them or none. It waits for nobody who holds a slot. What
// another client inserts meanwhile is ignored. The limit of MariaDB's on statements would end it.
func seedSQL(table string, slots int) string {
	return server.OnMariaDB("max_statement_time=0") + fmt.Sprintf("INSERT IGNORE INTO %s (slot, slots)\n"+
		"WITH RECURSIVE d (d) AS (SELECT 0 UNION ALL SELECT d + 1 FROM d WHERE d < 127)\n"+
		"SELECT n, %d FROM (SELECT a.d * 16384 + b.d * 128 + c.d AS n FROM d AS a, d AS b, d AS c\n"+
		"  WHERE a.d * 16384 < %[2]d AND b.d * 128 < %[2]d) AS numbers\n"+
		"WHERE n < %[2]d AND NOT EXISTS (SELECT 1 FROM %[1]s AS present WHERE present.slot = n)\n"+
		"AND NOT EXISTS (SELECT 1 FROM %[1]s AS other WHERE other.slots <> %[2]d)", table, slots)
}

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
	return of(table, server.OnMariaDB(server.SomeWait)+"DELETE gone FROM (SELECT "+key+" AS it"+old+" AND "+time+
		" < NOW - INTERVAL $2 MICROSECOND ORDER BY "+time+" LIMIT $3 FOR UPDATE SKIP LOCKED) AS old "+
		"STRAIGHT_JOIN {} AS gone FORCE INDEX (PRIMARY) ON gone."+key+" = old.it;\n"+
		"SELECT CONCAT_WS(' ', ROW_COUNT(), (SELECT "+micros("MIN("+time+")")+old+"))")
}

// Of are the texts for a lock table.
func Of(table string, galera bool) (k dialects.Kinds, err error) {
	beside, err := server.Beside(table)
	ping := "SELECT IF(" + server.Writable + ", '', CONCAT('the server ', @@hostname, ':', @@port, ' is read_only, " +
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
			literal, _ = server.Literal(dialects.Value{Text: arg, Binary: !utf8.ValidString(arg)})
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
	look := func(further string) dialects.Query {
		return reading(table, "SELECT CONCAT_WS(' ', "+micros("NOW")+", (SELECT CONCAT_WS(' ', "+micros("done_at")+
			further+") FROM {} WHERE marker = $1))")
	}
	insert := func(columns, values string) string {
		return "INSERT INTO {} (marker, done_at, run" + columns + ") VALUES ($1, " + values +
			") ON DUPLICATE KEY UPDATE "
	}
	marked := "done_at = IF(" + old + ", VALUES(done_at), (SELECT 1 UNION ALL SELECT 2))"
	return dialects.OnceSQL{
		Table:    table,
		Look:     look(""),
		Mark:     of(table, insert("", at("$2")+", 0")+marked),
		Answer:   look(", HEX(answer)"),
		MarkWith: of(table, insert(", answer", at("$2")+", 0, $4")+"answer = VALUES(answer), "+marked),
		Forget:   of(table, "DELETE FROM {} WHERE marker = $1;\nSELECT 1"), // a query behind a lock has rows
		First: of(table, insert("", "NOW, $2")+"run = IF("+old+", VALUES(run), run), done_at = IF("+old+
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
			"UNION ALL (SELECT IF(name = '', '', 'free') "+own+"= "+queue+" "+server.Sharing+server.SkipLocked+")"),
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
			server.Sharing+server.SkipLocked+") UNION ALL (SELECT CONCAT_WS(' ', IF("+server.Writable+", 'writes', "+
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
	skipping := server.OnMariaDB(server.SomeWait)
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
		fragment := server.OnMariaDB("wsrep_trx_fragment_unit='rows'", "wsrep_trx_fragment_size=1")
		sql.Move.SQL = fragment + sql.Move.SQL
		change := of(table, "UPDATE {} SET since = since + INTERVAL 1 MICROSECOND WHERE claim = $1;\n").SQL
		sql.Keep.SQL = fragment + change + sql.Keep.SQL
	}
	return sql
}
