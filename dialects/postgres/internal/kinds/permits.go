package kinds

import "github.com/txlock/txlock/dialects"

func permitsOf(table, queue string) dialects.PermitSQL {
	return dialects.PermitSQL{
		Table: table,
		Look: reading(table, "select concat(id, case permit when "+queue+" then case when "+
			"pg_try_advisory_xact_lock_shared(NUMBER, id) then ' free' end end) from {} "+
			"where hash = $1::text and (permit < $2::int or permit = "+queue+") order by permit"),
		Make: of(table, counting+";\n"+missing("permit", "$3", "(select case i when $2::int then "+queue+" else i end "+
			"as permit from generate_series(0, $2::int) i) list")),
	}
}

// counting is for who makes rows. A logical replica has the rows of its publisher, but not how far
// their numbers were drawn. So one at a time counts on. No row has the number 0.
const counting = "select pg_advisory_xact_lock(NUMBER, 0)"

// missing makes the rows of a name that are missing: those whose column has a value of list.
func missing(column, name, list string) string {
	return "insert into {} (id, hash, name, " + column + ") overriding system value " +
		"select coalesce((select max(id) from {}), 0) + row_number() over (order by " + column + "), " +
		"$1::text, nullif(" + name + "::text, ''), " + column + " from " + list + " where not exists " +
		"(select from {} own where own.hash = $1::text and own." + column + " = list." + column + ") " +
		"on conflict do nothing"
}
