package kinds

import "github.com/txlock/txlock/dialects"

// micros are the microseconds since the Unix epoch of a time. They are exact: extract is numeric.
func micros(time string) string {
	return "(extract(epoch from " + time + ") * 1000000::numeric)::bigint"
}

// at is a time of that many microseconds.
func at(micros string) string {
	return "to_timestamp(0) + " + micros + "::MICROSECONDS"
}

// sweep deletes rows, known by their key, whose time is long ago: see dialects.OnceSQL.
func sweep(table, key, time string) dialects.Query {
	return of(table, "with old as (select "+key+", "+time+" as at from {} where "+time+" >= "+at("$1")+
		" and "+time+" < now() - $2::MICROSECONDS order by at limit $3::bigint "+
		"for update skip locked), gone as (delete from {} former using old where former."+key+" = old."+
		key+") select concat_ws(' ', count(*), "+micros("max(at)")+") from old")
}

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
