// Package installation has the lock table and those beside it, as data.
package installation

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/kinds"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/identifier"
	"github.com/txlock/txlock/internal/locktable"
)

// Layout is that of a lock table.
func Layout(locks string) (l dialects.Layout, err error) {
	beside, err := sqltext.Beside(locks)
	// A part is missing where its table, {}, is, or lacks the column. Any table has an oid.
	const oid = "tableoid"
	part := func(suffix, column, sql string) {
		name := beside(suffix)
		missing := "NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass(" + sqltext.Literal(name) +
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
	part(sqltext.Tokens, oid, "CREATE SEQUENCE IF NOT EXISTS {}")

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

	// Sweep finds old markers, and claims that ended long ago, by the indexes.
	part(locktable.Markers, oid, `CREATE TABLE IF NOT EXISTS {} (
    marker bytea NOT NULL PRIMARY KEY,
    done_at timestamptz NOT NULL
)`+index(locktable.Markers, "_at", "done_at"))

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
		sqltext.Literal(beside(""))+"::regclass::oid)"))
	l.Kinds = kinds.Of
	// For clusters that server.Identity does not know of, because what it would ask for may serve
	// others, too: Spock, and a lock table that is replicated both ways.
	l.Writers = identifier.Qualified("select concat('it has the extension ', extname) " +
		"from pg_extension where extname in ('pgactive', 'bdr', 'spock') union all " +
		"select concat('subscription ', s.subname, ' brings rows into the lock table, and publication ', p.pubname, " +
		"' carries them out') from pg_subscription s join pg_subscription_rel r on r.srsubid = s.oid " +
		"join pg_class c on c.oid = r.srrelid join pg_namespace n on n.oid = c.relnamespace " +
		"join pg_publication_tables p on p.tablename = c.relname and p.schemaname = n.nspname " +
		"where s.subenabled and c.oid = " + sqltext.Literal(beside("")) + "::regclass::oid")
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
		return "select pg_catalog.set_config('statement_timeout', '0', true);\ndo " + sqltext.Literal(body)
	}
	return l, err
}
