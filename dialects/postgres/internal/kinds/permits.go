package kinds

import (
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

func permits(table string) dialects.Permits {
	number := sqltext.NumberOf(table)
	return dialects.Permits{
		Table: table,
		Find: "select id::text from " + table +
			" where hash = $1 and permit = any(string_to_array($2, ',')::int[]) order by permit",
		// A logical replica has the rows of its publisher, but not how far their numbers were drawn. So
		// one at a time counts on. No row has the number 0.
		Make: "select pg_advisory_xact_lock(" + number + ", 0);\n" +
			"insert into " + table + " (id, hash, name, permit) overriding system value " +
			"select coalesce((select max(id) from " + table + "), 0) + row_number() over (order by permit), " +
			"$1, nullif($3, ''), permit from unnest(string_to_array($2, ',')::int[]) permit " +
			"where not exists (select from " + table + " own where own.hash = $1 and own.permit = permit.permit) " +
			"on conflict do nothing",
		Look: "select 'is' from " + table + " where id = $1::int and hash = $2 union all " +
			"select 'free' from " + table + " where id = $1::int and hash = $2 and pg_try_advisory_xact_lock_shared(" +
			number + ", id)",
	}
}
