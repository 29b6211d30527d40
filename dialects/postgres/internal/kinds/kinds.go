// Package kinds has the SQL of the kinds of locks that are clients of the others: texts, and no
// branches.
package kinds

import (
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/identifier"
	"github.com/txlock/txlock/internal/locktable"
)

// of is a query about the table {}. NUMBER is that of its queue locks.
func of(table, text string) dialects.Query {
	text = strings.NewReplacer("{}", table, "NUMBER", sqltext.NumberOf(table), "NOW", "clock_timestamp()",
		"MICROSECONDS", "float8 * interval '1 microsecond'").Replace(text)
	return dialects.Query{SQL: identifier.Qualified(text), Table: table}
}

// Of are the texts for a lock table.
func Of(table string) (k dialects.Kinds, err error) {
	beside, err := sqltext.Beside(table)
	queue := strconv.Itoa(locktable.QueuePermit)
	return dialects.Kinds{
		// A standby refuses BEGIN READ WRITE.
		Ping: of(beside(""), "select '' from {} where slots > 0 limit 1"),
		Once: onceOf(beside(locktable.Markers)), Claims: claimsOf(beside(locktable.Claims)),
		Permits: permitsOf(beside(locktable.Permits), queue), Leaders: leadersOf(beside(locktable.Leaders)),
	}, err
}

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

func permitsOf(table, queue string) dialects.PermitSQL {
	return dialects.PermitSQL{
		Table: table,
		Look: of(table, "select concat(id, case permit when "+queue+" then case when "+
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

func leadersOf(table string) dialects.LeadersSQL {
	const record = " where hash = $1::text and part = 'record'"
	return dialects.LeadersSQL{
		Table: table,
		// Where the rows are, a candidate that is stopped here must not hold up others.
		Rows: of(table, counting+" where not exists (select from {} where hash = $1::text);\n"+
			missing("part", "$2", "unnest(array['seat', 'record', 'office']) list (part)")+";\n"+
			"select concat(string_agg(id::text, ' ' order by part desc)) from {} where hash = $1::text and "+
			"part <> 'record'"),
		Write: of(table, "with former as (select id, term, identity from {} where hash = $3::text and "+
			"part = 'record' for update), written as (update {} own set term = $1::bigint, "+
			"identity = $2::text, since = NOW from former where own.id = former.id and "+
			"former.term < $1::bigint returning former.identity) "+
			"select case when identity is null then 'resigned' else 'lost' end from written"),
		Resign: of(table, "update {} set identity = null"+record+" and term = $2::bigint returning id::text"),
		// The lock in front of the office, which a renewal keeps. The snapshot of the record is
		// later.
		Leader: of(table, "select "+sqltext.Set("txlock.office", "case when pg_try_advisory_xact_lock_shared("+
			"NUMBER, id) then 'free' end")+" from {} where hash = $1::text and part = 'office';\n"+
			"select concat_ws(' ', nullif(current_setting('txlock.office', true), ''), 'writes', term, "+
			micros("since")+", encode(convert_to(identity, 'UTF8'), 'hex')) from {}"+record),
	}
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
		Look: of(table, "select concat_ws(' ', "+micros("NOW")+", (select "+micros("done_at")+
			" from {} where marker = $1::bytea))"),
		Mark:   of(table, insert(at("$2"))+"case when "+old+" then excluded.done_at end"),
		First:  of(table, insert("NOW")+"excluded.done_at where "+old+" returning $2::bigint"),
		Forget: of(table, "delete from {} where marker = $1::bytea"),
		Sweep:  sweep(table, "marker", "done_at"),
	}
}

// claimsOf reads the clock behind the lock of a row. A statement sees a row, or that there is none.
// So Take makes a missing one in front, as one that has ended.
func claimsOf(table string) dialects.ClaimSQL {
	line := func(number string) string {
		return "select concat_ws(' ', " + number + ", c.token, c.secret, " + micros("c.since") + ", " +
			micros("c.until") + ", " + micros("c.until") + " - " + micros("NOW") + ", encode(c.claim, 'hex'), " +
			"encode(convert_to(c.holder, 'UTF8'), 'hex'), encode(convert_to(coalesce(c.name, ''), 'UTF8'), 'hex')) " +
			"from "
	}
	read := line("1") + "{} c where c.until > NOW "
	held := " where claim = $1::bytea and holder = $2::text and token = $3::bigint and $4::bigint in (secret, 0) and " +
		"until > NOW"
	end := "(" + micros("until") + ")::text"
	return dialects.ClaimSQL{
		Table: table,
		Read:  of(table, read+"and c.claim = $1::bytea"),
		List:  of(table, read+"order by c.until limit 10000"),
		Keep:  of(table, "select "+end+" from {}"+held), // at READ COMMITTED: LockTx refuses other transactions
		Move: of(table, "update {} set until = case when $5::bigint > 0 then NOW + $5::MICROSECONDS else "+
			"to_timestamp(0) end"+held+" returning "+end),
		Take: of(table, "insert into {} (claim, holder, token, secret, since, until) select $1::bytea, '', "+
			micros("NOW")+", 0, at, at from to_timestamp(0) at where not exists (select from {} where claim = "+
			"$1::bytea) on conflict do nothing;\n"+
			"with mine as materialized (select claim from {} where claim = $1::bytea and (until <= NOW or holder = "+
			"$2::text) for update skip locked), clock as materialized (select NOW as now from mine), "+
			"taken as (update {} c set holder = $2::text, name = nullif($4::text, ''), until = now + "+
			"$5::MICROSECONDS, token = c.token + (c.until <= now)::int, "+
			"secret = case when c.until > now then c.secret else $3::bigint end, "+
			"since = case when c.until > now then c.since else now end "+
			"from clock where c.claim = $1::bytea returning c.*) "+line("1")+"taken c union all "+
			line("0")+"{} c where c.claim = $1::bytea and not exists (select from taken)"),
		Sweep: sweep(table, "claim", "until"),
	}
}
