package sqltext

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/identifier"
	"github.com/txlock/txlock/internal/locktable"
)

// QuoteTable quotes the name of a table as its user spells it, with its schema or without.
func QuoteTable(name string) (string, error) { return identifier.Quote(name, '"', 2) }

// QuoteColumn quotes the name of a column.
func QuoteColumn(name string) (string, error) { return identifier.Quote(name, '"', 1) }

// Tokens is what the name of the sequence ends with that tokens are drawn from. See locktable for
// the tables beside a lock table.
const Tokens = "_tokens"

// Beside names what stands beside a lock table, quoted. The server cuts names at 63 bytes, so a
// longer one is an error: the names must differ.
func Beside(table string) (beside func(suffix string) string, err error) {
	const longest = 63 - len(locktable.Leaders)
	quoted, err := QuoteTable(table)
	stem := strings.TrimSuffix(quoted, `"`)
	if name := stem[strings.LastIndex(stem, `."`)+1:]; len(name) > len(`"`)+longest {
		err = fmt.Errorf("table name %.100s is too long: at most %d bytes, for others are named after it", table,
			longest)
	}
	return func(suffix string) string { return stem + suffix + `"` }, err
}

// The functions that pass a turnstile. The first two hold it until the end of the transaction, the
// others as long as the session lives or wants. Each has a shared form.
const (
	Passing   = "pg_advisory_xact_lock"
	Trying    = "pg_try_advisory_xact_lock"
	Keeping   = "pg_try_advisory_lock"
	Unkeeping = "pg_advisory_unlock"
)

// Pass calls one of them for a number, as request locks.
func Pass(request dialects.Request, function, number string) string {
	if request.Shared {
		function += "_shared"
	}
	if request.Ours {
		number = NumberOf(request.Table) + ", " + number
	}
	return "pg_catalog." + function + "(" + number + ")"
}

// NumberOf is the table's number. A prepared statement looks it up anew when the table is made
// anew.
func NumberOf(table string) string {
	quoted, _ := QuoteTable(table) // the row's statement has the error
	return Literal(quoted) + "::pg_catalog.regclass::pg_catalog.oid::int"
}

// Set sets a setting until the end of the transaction.
func Set(setting, argument string) string {
	return "pg_catalog.set_config('" + setting + "', " + argument + ", true)"
}

// Turnstile is the number of the turnstile in front of a row of the caller's.
func Turnstile(table, column, value string) int64 {
	h := fnv.New64a()
	h.Write([]byte("txlock\x00" + table + "\x00" + column + "\x00" + value))
	return int64(h.Sum64())
}

// InThisDatabase is the condition that a lock of pg_locks is one of the current database: the
// server has one list for all.
const InThisDatabase = "database = (select oid from pg_database where datname = current_database())"

// Ping is a heartbeat. It is an empty query, that is no statement: somebody's pg_cancel_backend
// would abort the transaction with a statement, and release the lock. Only where the client library
// does not say in which state the answer leaves the session, a statement follows that asks for it.
// The server shows the text to who may see the session.
const Ping = "-- txlock ping"

// Tag begins a query of several statements, and the rest of a comment says whose it is.
const Tag = "/* txlock "
