package kinds

import (
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

func leadersOf(table string) dialects.LeadersSQL {
	rows := "select concat_ws(' ', seat.id, office.id) from {} seat join {} office on " +
		"office.hash = seat.hash and office.part = 'office' where seat.hash = $1::text and seat.part = 'seat'"
	record := " where hash = $1::text and part = 'record'"
	make := func(columns, values string) string {
		return "insert into {} (" + columns + "hash, name, part) " + values + "$1::text, " +
			"nullif($2::text, ''), parts.part from unnest(array['seat', 'record', 'office']) parts (part) where " +
			"not exists (select from {} own where own.hash = $1::text and own.part = parts.part) " +
			"on conflict do nothing;\n"
	}
	return dialects.LeadersSQL{
		Table: table,
		// A logical replica has the rows of its publisher, but not how far their numbers were
		// drawn.
		Rows: of(table, make("", "select ")+make("id, ", "overriding system value select (select max(id) from {}) + "+
			"row_number() over (), ")+rows),
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
