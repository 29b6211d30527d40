package inspection

import (
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// ours is a table of txlock's.
type ours struct {
	kind   dialects.Kind
	quoted string
}

// Each query returns rows of JSON, because a script returns the first column alone. The clock is
// read once in each: with a time for each row, a waiter could seem to wait longer than the one in
// front.
//
// PostgreSQL keeps row locks in the rows, and no view lists one that is held and not awaited. The
// turnstile in front of the row is listed: an advisory lock, whose number says which row it belongs
// to. What others use such locks for is left out.
const (
	advisorySQL = `coalesce(l.pid, 0) as pid, l.virtualtransaction as transaction, l.granted,
		l.mode = 'ShareLock' as shared, extract(epoch from coalesce(l.waitstart, x.prepared)) as since,
		(select extract(epoch from clock_timestamp())) as now, x.gid as prepared, x.owner as "user", x.database,
		l.classid::bigint as high, l.objid::bigint as low, l.objsubid as sub
	from pg_locks l left join (pg_prepared_xacts x join pg_locks t on t.locktype = 'transactionid'
		and t.transactionid = x.transaction and t.pid is null)
		on l.pid is null and t.virtualtransaction = l.virtualtransaction `
	theseSQL = " where l.locktype = 'advisory' and l." + sqltext.InThisDatabase

	// callersSQL are the turnstiles in front of callers' rows.
	callersSQL = "select row_to_json(s)::text from (select " + advisorySQL + theseSQL + " and l.objsubid = 1) s"

	sessionsSQL = `select row_to_json(s)::text from (
	select a.pid, a.pid::text as session, v.virtualtransaction as transaction, application_name as application,
		coalesce(client_hostname, host(client_addr)) as host, client_port as port, usename as "user",
		datname as database, coalesce(state like 'idle%', false) as idle,
		case when state is not null then query end as statement, extract(epoch from xact_start) as begun,
		w.pid is not null as awaits, extract(epoch from w.waitstart) as awaiting,
		case when w.pid is not null then pg_blocking_pids(a.pid) end as blockers,
		(select extract(epoch from clock_timestamp())) as now
	from pg_stat_activity a join pg_locks v on v.pid = a.pid and v.locktype = 'virtualxid'
		and v.virtualxid = v.virtualtransaction
	left join pg_locks w on w.pid = a.pid and not w.granted and w.locktype in ('transactionid', 'tuple')
	where a.pid <> pg_backend_pid()) s`
)

// oursSQL reads the turnstiles in front of slots, of permits and the queues of semaphores, or of
// seats. Of the latter, $1 are the hashes of those that are asked for; none for all.
func oursSQL(table ours, hashes []string) sqltext.Statement {
	these := theseSQL + " and l.objsubid = 2 and l.classid = " + sqltext.Literal(table.quoted) + "::regclass::oid"
	column, seats := "p.permit", ""
	switch table.kind {
	case dialects.KindRow:
		return sqltext.Statement{SQL: "select row_to_json(s)::text from (select " + advisorySQL + these +
			" and l.objid::int >= 0) s"}
	case dialects.KindElection:
		column, seats = "0 as permit", " and p.part = 'seat'"
	}
	return sqltext.With("select row_to_json(s)::text from (select p.hash, p.name, "+column+", "+advisorySQL+"join "+
		table.quoted+" p on p.id = l.objid::int"+seats+these+
		" and (cardinality($1::text[]) = 0 or p.hash = any($1::text[]))) s", sqltext.ArrayOf(hashes))
}

func readableSQL(quoted string) sqltext.Statement {
	return sqltext.Statement{SQL: "select coalesce(has_table_privilege(to_regclass(" + sqltext.Literal(quoted) +
		"), 'select'), false)::text"}
}

// endSQL ends a session that is still in the transaction, or has renewed its locks since then, and
// has the turnstile if it had one. It tells whether the session ended within 5 s.
const endSQL = "select pg_terminate_backend(pid, 5000)::text from (select distinct l.pid from pg_locks l " +
	"join pg_stat_activity a on a.pid = l.pid where l.pid::text = $1::text " +
	"and ($3::text = '' or l.locktype = 'advisory' and l.granted " +
	"and concat_ws(':', l.objsubid, l.classid, l.objid) = $3::text) " +
	"and (l.virtualtransaction = $2::text or $4::text <> '' and right(a.application_name, length($4::text)) = " +
	"$4::text)) s"
