package kinds

import "github.com/txlock/txlock/dialects"

// onceOf reads the clock when a statement runs, behind the grant, and not when the transaction
// began. The time of a marker is never null, so Mark fails where there is nothing to update.
func onceOf(table string) dialects.OnceSQL {
	old := "former.done_at < excluded.done_at - (" + micros("excluded.done_at") +
		" % nullif($3::bigint, 0))::MICROSECONDS"
	insert := func(time string) string {
		return "insert into {} as former (marker, done_at) values ($1::bytea, " + time +
			") on conflict (marker) do update set done_at = "
	}
	return dialects.OnceSQL{
		Table: table,
		Look: reading(table, "select concat_ws(' ', "+micros("NOW")+", (select "+micros("done_at")+
			" from {} where marker = $1::bytea))"),
		Mark:   of(table, insert(at("$2"))+"case when "+old+" then excluded.done_at end"),
		First:  of(table, insert("NOW")+"excluded.done_at where "+old+" returning $2::bigint"),
		Forget: of(table, "delete from {} where marker = $1::bytea"),
		Sweep:  sweep(table, "marker", "done_at"),
	}
}
