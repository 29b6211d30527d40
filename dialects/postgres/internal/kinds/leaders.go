package kinds

import (
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

func leadersOf(table string) dialects.LeadersSQL {
	const record = " where hash = $1::text and part = 'record'"
	return dialects.LeadersSQL{
		Table: table,
		// Where the rows are, a candidate that is stopped here must not hold up others.
		Rows: of(table, counting+" where not exists (select from {} where hash = $1::text);\n"+
			missing("part", "$2", "unnest(array['seat', 'record', 'office']) list (part)")+";\n"+
			"select concat_ws(' ', seat.id, office.id) from {} seat join {} office on office.hash = seat.hash and "+
			"office.part = 'office' where seat.hash = $1::text and seat.part = 'seat'"),
		Write: of(table, "with former as (select id, term, identity from {} where hash = $3::text and "+
			"part = 'record' for update), written as (update {} own set term = $1::bigint, "+
			"identity = $2::text, since = NOW from former where own.id = former.id and "+
			"former.term < $1::bigint returning former.identity) "+
			"select case when identity is null then 'resigned' else 'lost' end from written"),
		Resign: of(table, "update {} set identity = null"+record+" and term = $2::bigint returning id::text"),
		// The lock in front of the office, which a renewal keeps. The snapshot of the record is
		// later.
		Leader: reading(table, "select "+sqltext.Set("txlock.office", "case when pg_try_advisory_xact_lock_shared("+
			"NUMBER, id) then 'free' end")+" from {} where hash = $1::text and part = 'office';\n"+
			"select concat_ws(' ', nullif(current_setting('txlock.office', true), ''), 'writes', term, "+
			micros("since")+", encode(convert_to(identity, 'UTF8'), 'hex')) from {}"+record),
	}
}
