// Package installation has the lock table and those beside it, as data, and the SQL of the kinds of
// locks: texts, and no branches.
package installation

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/internal/identifier"
	"github.com/txlock/txlock/internal/locktable"
)

// Layout is that of a lock table.
func Layout(locks string) (l dialects.Layout, err error) {
	beside, err := server.Beside(locks)
	// A part is missing where its table, {}, is, or lacks the column. Any table has an oid.
	const oid = "tableoid"
	part := func(suffix, column, sql string) {
		name := beside(suffix)
		missing := "NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass(" + server.Literal(name) +
			")::oid AND attname = '" + column + "')"
		l.Parts = append(l.Parts, dialects.Part{
			Table: name, Missing: identifier.Qualified(missing), SQL: strings.ReplaceAll(sql, "{}", name),
		})
	}
	// An index stands in the schema of its table, and is made with that: CREATE INDEX would wait
	// for work that is under way, also where there is one.
	index := func(suffix, name, column string) string {
		name = beside(suffix + name)
		return ";\n\nCREATE INDEX IF NOT EXISTS " + name[strings.LastIndex(name, `."`)+1:] + " ON {} (" + column + ")"
	}

	// The primary key is unnamed: the server finds a free name. Every row states the number of
	// slots: a client with an old number finds no row to lock instead of a wrong one.
	part("", oid, `CREATE TABLE IF NOT EXISTS {} (
    slot integer NOT NULL PRIMARY KEY,
    slots integer NOT NULL,
    CHECK (slot >= 0 AND slot < slots)
)`)

	// What tokens are drawn from. The first holder inserts the row of runs. The epochs of version
	// 0.1 lack a column, and to add it waits for all who hold a lock with a token.
	part(locktable.Epochs, oid, `CREATE TABLE IF NOT EXISTS {} (
    epoch bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    begun boolean NOT NULL DEFAULT false,
    server timestamptz[]
)`)
	part(locktable.Epochs, "server", "ALTER TABLE {} ADD COLUMN IF NOT EXISTS server timestamptz[]")
	part(locktable.Runs, oid, `CREATE UNLOGGED TABLE IF NOT EXISTS {} (
    running boolean NOT NULL PRIMARY KEY CHECK (running),
    epoch bigint NOT NULL,
    start bigint NOT NULL
)`)
	part(server.Tokens, oid, "CREATE SEQUENCE IF NOT EXISTS {}")

	// Clients agree on the hash of an election's name, which version 0.1 did not have. The name is
	// for people. Nobody writes a seat: its waiters would chase the versions of the row.
	part(locktable.Leaders, "hash", `CREATE TABLE IF NOT EXISTS {} (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hash text NOT NULL,
    name text,
    part text NOT NULL CHECK (part IN ('seat', 'record', 'office')),
    identity text,
    term bigint NOT NULL DEFAULT 0,
    since timestamptz,
    UNIQUE (hash, part)
)`)

	// The same of a semaphore's key. Nobody locks or writes a row: its number is that of an
	// advisory lock.
	part(locktable.Permits, "hash", `CREATE TABLE IF NOT EXISTS {} (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hash text NOT NULL,
    name text,
    permit integer NOT NULL CHECK (permit >= 0),
    UNIQUE (hash, permit)
)`)

	// Sweep finds old markers, and claims that ended long ago, by the indexes. Version 0.1 had no
	// answers, and to add them waits for works of a Once that are under way.
	part(locktable.Markers, oid, `CREATE TABLE IF NOT EXISTS {} (
    marker bytea NOT NULL PRIMARY KEY,
    done_at timestamptz NOT NULL,
    answer bytea
)`+index(locktable.Markers, "_at", "done_at"))
	part(locktable.Markers, "answer", "ALTER TABLE {} ADD COLUMN IF NOT EXISTS answer bytea")

	// A claim is its holder's by the secret.
	part(locktable.Claims, oid, `CREATE TABLE IF NOT EXISTS {} (
    claim bytea NOT NULL PRIMARY KEY,
    name text,
    holder text NOT NULL,
    token bigint NOT NULL,
    secret bigint NOT NULL,
    since timestamptz NOT NULL,
    until timestamptz NOT NULL
)`+index(locktable.Claims, "_until", "until"))

	l.Census = identifier.Qualified(locktable.CensusSQL(beside("")))
	l.Find = identifier.Qualified(locktable.LastSQL(beside(""), "(select format('%I.%I', nspname, relname) from "+
		"pg_class c join pg_namespace n on n.oid = relnamespace where c.oid = "+
		server.Literal(beside(""))+"::regclass::oid)"))
	l.Kinds = kindsOf
	// For clusters that server.Identity does not know of, because what it would ask for may serve
	// others, too: Spock, and a lock table that is replicated both ways.
	l.Writers = identifier.Qualified("select concat('it has the extension ', extname) " +
		"from pg_extension where extname in ('pgactive', 'bdr', 'spock') union all " +
		"select concat('subscription ', s.subname, ' brings rows into the lock table, and publication ', p.pubname, " +
		"' carries them out') from pg_subscription s join pg_subscription_rel r on r.srsubid = s.oid " +
		"join pg_class c on c.oid = r.srrelid join pg_namespace n on n.oid = c.relnamespace " +
		"join pg_publication_tables p on p.tablename = c.relname and p.schemaname = n.nspname " +
		"where s.subenabled and c.oid = " + server.Literal(beside("")) + "::regclass::oid")
	l.Seed = func(slots int) string {
		return fmt.Sprintf("INSERT INTO %s (slot, slots)\nSELECT slot, %d FROM generate_series(0, %[2]d - 1) AS slot\n"+
			"WHERE NOT EXISTS (SELECT FROM %[1]s WHERE slots <> %[2]d)\nON CONFLICT DO NOTHING", beside(""), slots)
	}
	// One statement, because pgx would prepare some of several before others have made what they
	// need. CREATE TABLE IF NOT EXISTS alone fails when two clients run it at once: so an advisory
	// lock keeps others out. The limit on statements would end the seeding, again and again.
	l.Together = func(statements ...string) string {
		lock := fnv.New64a()
		lock.Write([]byte("txlock install\x00" + beside("")))
		all := strings.ReplaceAll(strings.Join(statements, "; "), ";\n", "; ")
		body := identifier.Qualified(fmt.Sprintf("begin perform pg_advisory_xact_lock(%d); %s; end",
			int64(lock.Sum64()), all))
		return "select pg_catalog.set_config('statement_timeout', '0', true);\ndo " + server.Literal(body)
	}
	return l, err
}

// of is a query about the table {}. NUMBER is that of its queue locks.
func of(table, text string) dialects.Query {
	text = strings.NewReplacer("{}", table, "NUMBER", server.NumberOf(table), "NOW", "clock_timestamp()",
		"MICROSECONDS", "float8 * interval '1 microsecond'").Replace(text)
	return dialects.Query{SQL: identifier.Qualified(text), Table: table}
}

// kindsOf are the texts of the kinds of locks that are clients of the others.
func kindsOf(table string) (k dialects.Kinds, err error) {
	beside, err := server.Beside(table)
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
		Leader: of(table, "select "+server.Set("txlock.office", "case when pg_try_advisory_xact_lock_shared("+
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
	look := func(further string) dialects.Query {
		return of(table, "select concat_ws(' ', "+micros("NOW")+", (select concat_ws(' ', "+micros("done_at")+further+
			") from {} where marker = $1::bytea))")
	}
	insert := func(columns, values string) string {
		return "insert into {} as former (marker, " + columns + ") values ($1::bytea, " + values +
			") on conflict (marker) do update set done_at = "
	}
	marked := "case when " + old + " then excluded.done_at end"
	return dialects.OnceSQL{
		Table:    table,
		Look:     look(""),
		Mark:     of(table, insert("done_at", at("$2"))+marked),
		First:    of(table, insert("done_at", "NOW")+"excluded.done_at where "+old+" returning $2::bigint"),
		Forget:   of(table, "delete from {} where marker = $1::bytea"),
		Answer:   look(", encode(answer, 'hex')"),
		MarkWith: of(table, insert("done_at, answer", at("$2")+", $4::bytea")+marked+", answer = excluded.answer"),
		Sweep:    sweep(table, "marker", "done_at"),
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
