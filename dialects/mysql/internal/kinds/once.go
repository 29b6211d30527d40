package kinds

import "github.com/txlock/txlock/dialects"

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
