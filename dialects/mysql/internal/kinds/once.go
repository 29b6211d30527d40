package kinds

import (
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

const (
	// now is the same in all of a statement: the time at which it began.
	now = "UTC_TIMESTAMP(6)"
	// at is a time of that many microseconds since the Unix epoch.
	at = "(TIMESTAMP '1970-01-01 00:00:00' + INTERVAL ? MICROSECOND)"
)

func micros(time string) string { return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', " + time + ")" }

// onceOf has a marker that exists found by its primary key, so that no gap is locked at REPEATABLE
// READ. The count of rows tells nothing: with clientFoundRows it is 1 in any case. Hence the error
// of Mark, in each sql_mode, and the number of First.
func onceOf(table string) dialects.OnceSQL {
	old := "done_at < VALUES(done_at) - INTERVAL MOD(" + micros("VALUES(done_at)") + ", NULLIF(?, 0)) MICROSECOND"
	insert := func(values string) string {
		return "INSERT INTO " + table + " (marker, done_at, run) VALUES (?, " + values + ") ON DUPLICATE KEY UPDATE "
	}
	return dialects.OnceSQL{
		Table: table,
		Look: "SELECT CONCAT_WS(' ', " + micros(now) + ", (SELECT " + micros("done_at") + " FROM " + table +
			" WHERE marker = ?))",
		Mark: insert(at+", 0") + "done_at = IF(" + old + ", VALUES(done_at), (SELECT 1 UNION ALL SELECT 2))",
		First: insert(now+", ?") + "run = IF(" + old + ", VALUES(run), run), done_at = IF(" + old +
			", VALUES(done_at), done_at);\nSELECT run FROM " + table + " WHERE marker = ? AND run = ? FOR UPDATE",
		Forget: "DELETE FROM " + table + " WHERE marker = ?",
		Sweep:  sweepOf(table, "marker", "done_at"),
	}
}

// sweepOf deletes rows of a table whose time is over. Each part names its index: the server would
// read all of a small table otherwise, and would lock what it reads.
func sweepOf(table, key, time string) string {
	from := " FROM " + table + " FORCE INDEX (" + time + ") WHERE " + time + " >= " + at
	return sqltext.OnMariaDB(sqltext.SomeWait) + "DELETE gone FROM (SELECT " + key + from + " AND " + time + " < " +
		"" + now + " - INTERVAL ? MICROSECOND " +
		"ORDER BY " + time + " LIMIT ? FOR UPDATE SKIP LOCKED) AS old STRAIGHT_JOIN " + table +
		" AS gone FORCE INDEX (PRIMARY) ON gone." + key + " = old." + key +
		";\nSELECT CONCAT_WS(' ', ROW_COUNT(), (SELECT " + micros("MIN("+time+")") + from + "))"
}
