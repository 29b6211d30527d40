package kinds

import (
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

func leadersOf(table string) dialects.LeadersSQL {
	rows := "select concat_ws(' ', seat.id, office.id) from " + table + " seat join " + table + " office on " +
		"office.hash = seat.hash and office.part = 'office' where seat.hash = $1::text and seat.part = 'seat'"
	record := " where hash = $1::text and part = 'record'"
	make := func(columns, values string) string {
		return "insert into " + table + " (" + columns + "hash, name, part) " + values + "$1::text, " +
			"nullif($2::text, ''), parts.part from unnest(array['seat', 'record', 'office']) parts (part) where " +
			"not exists (select from " + table + " own where own.hash = $1::text and own.part = parts.part) " +
			"on conflict do nothing;\n"
	}
	return dialects.LeadersSQL{
		Table: table,
		// A logical replica has the rows of its publisher, but not how far their numbers were
		// drawn.
		Rows: make("", "select ") + make("id, ", "overriding system value select (select max(id) from "+table+
			") + row_number() over (), ") + rows,
		Write: "with former as (select id, term, identity from " + table + " where hash = $3::text and " +
			"part = 'record' for update), written as (update " + table + " own set term = $1::bigint, " +
			"identity = $2::text, since = clock_timestamp() from former where own.id = former.id and " +
			"former.term < $1::bigint returning former.identity) " +
			"select case when identity is null then 'resigned' else 'lost' end from written",
		Resign: "update " + table + " set identity = null" + record + " and term = $2::bigint returning id::text",
		// The lock in front of the office, which a renewal keeps. The snapshot of the record is
		// later.
		Leader: "select " + sqltext.Set("txlock.office", "case when pg_try_advisory_xact_lock_shared("+
			sqltext.NumberOf(table)+", id) then 'free' end") + " from " + table +
			" where hash = $1::text and part = 'office';\n" +
			"select concat_ws(' ', nullif(current_setting('txlock.office', true), ''), 'writes', term, " +
			"(extract(epoch from since) * 1000000::numeric)::bigint, encode(convert_to(identity, 'UTF8'), 'hex')) " +
			"from " + table + record,
	}
}
