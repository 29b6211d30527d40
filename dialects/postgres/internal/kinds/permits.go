package kinds

import "github.com/txlock/txlock/dialects"

func permitsOf(table, queue string) dialects.PermitSQL {
	return dialects.PermitSQL{
		Table: table,
		Look: reading(table, "select concat(id, case permit when "+queue+" then case when "+
			"pg_try_advisory_xact_lock_shared(NUMBER, id) then ' free' end end) from {} "+
			"where hash = $1::text and (permit < $2::int or permit = "+queue+") order by permit"),
		// A logical replica has the rows of its publisher, but not how far their numbers were
		// drawn. So one at a time counts on. No row has the number 0.
		Make: of(table, "select pg_advisory_xact_lock(NUMBER, 0);\n"+
			"insert into {} (id, hash, name, permit) overriding system value "+
			"select coalesce((select max(id) from {}), 0) + row_number() over (order by permit), "+
			"$1, nullif($3, ''), permit from (select case i when $2::int then "+queue+" else i end as permit "+
			"from generate_series(0, $2::int) i) list "+
			"where not exists (select from {} own where own.hash = $1 and own.permit = list.permit) "+
			"on conflict do nothing"),
	}
}
