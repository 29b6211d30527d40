package installation

import (
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// table is one to be created, or what else is created as a table is.
type table struct{ kind, name, definition string }

// create leaves alone what exists.
func (t table) create() string { return "CREATE " + t.kind + " IF NOT EXISTS " + t.name + t.definition }

// tables are the lock table, and what stands beside it.
type tables struct {
	locks                                 table
	epochs, runs, tokens                  table // what tokens are drawn from
	leaders, permits, markers, markersAge table
	claims, claimsEnd                     table
}

// completion adds what the epochs lack that were made by version 0.1. Install runs it only there:
// it would wait for all who hold a lock with a token.
func (t tables) completion() string {
	return "ALTER TABLE " + t.epochs.name + " ADD COLUMN IF NOT EXISTS server timestamptz[]"
}

// noClaim is the row from which the tokens of new claims count on.
const noClaim = "decode(repeat('0', 64), 'hex')"

// claimed makes that row, with more than all tokens that were drawn from the epochs: claims of
// version 0.1 had those.
func (t tables) claimed() string {
	return "INSERT INTO " + t.claims.name + " (claim, holder, token, secret, since, until)\nSELECT " + noClaim +
		", '', coalesce(max(epoch) + 1, 0) << " + strconv.Itoa(fencing.CountBits) +
		", 0, to_timestamp(0), to_timestamp(0) FROM " + t.epochs.name + "\nON CONFLICT DO NOTHING"
}

func tablesOf(locks string) (tables, error) {
	beside, err := sqltext.Beside(locks)
	index := func(of, name, column string) table {
		name = beside(of + name)
		return table{"INDEX", name[strings.LastIndex(name, `."`)+1:], " ON " + beside(of) + " (" + column + ")"}
	}
	return tables{
		// The primary key is unnamed: the server finds a free name. Every row states the number of
		// slots: missing rows show, and a client with an old number finds no row to lock instead of
		// a wrong one.
		locks: table{"TABLE", beside(""), ` (
    slot integer NOT NULL PRIMARY KEY,
    slots integer NOT NULL,
    CHECK (slot >= 0 AND slot < slots)
)`},

		epochs: table{"TABLE", beside(locktable.Epochs), ` (
    epoch bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    begun boolean NOT NULL DEFAULT false,
    server timestamptz[]
)`},
		// The first holder inserts the row.
		runs: table{"UNLOGGED TABLE", beside(locktable.Runs), ` (
    running boolean NOT NULL PRIMARY KEY CHECK (running),
    epoch bigint NOT NULL,
    start bigint NOT NULL
)`},
		tokens: table{"SEQUENCE", beside(sqltext.Tokens), ""},

		// Clients agree on the hash of an election's name. The name is for people. Nobody writes a
		// seat: its waiters would chase the versions of the row.
		leaders: table{"TABLE", beside(locktable.Leaders), ` (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hash text NOT NULL,
    name text,
    part text NOT NULL CHECK (part IN ('seat', 'record', 'office')),
    identity text,
    term bigint NOT NULL DEFAULT 0,
    since timestamptz,
    UNIQUE (hash, part)
)`},

		// Clients agree on the hash of a semaphore's key. The name is for people. Nobody locks or
		// writes a row: its number is that of an advisory lock.
		permits: table{"TABLE", beside(locktable.Permits), ` (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hash text NOT NULL,
    name text,
    permit integer NOT NULL CHECK (permit >= 0),
    UNIQUE (hash, permit)
)`},

		// Sweep finds old markers by the index, which stands in the schema of its table. Install
		// makes both only where the table is missing: CREATE INDEX would wait for work that is
		// under way also where there is an index.
		markers: table{"TABLE", beside(locktable.Markers), ` (
    marker bytea NOT NULL PRIMARY KEY,
    done_at timestamptz NOT NULL
)`},
		markersAge: index(locktable.Markers, "_at", "done_at"),

		// Sweep finds what ended long ago by the index. A claim is its holder's by the secret.
		claims: table{"TABLE", beside(locktable.Claims), ` (
    claim bytea NOT NULL PRIMARY KEY,
    name text,
    holder text NOT NULL,
    token bigint NOT NULL,
    secret bigint NOT NULL,
    since timestamptz NOT NULL,
    until timestamptz NOT NULL
)`},
		claimsEnd: index(locktable.Claims, "_until", "until"),
	}, err
}
