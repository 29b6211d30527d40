// Package server is PostgreSQL as both client libraries meet it: scripts and literals of its SQL,
// names of tables, and what its errors mean for a lock, by their SQLSTATEs.
package server

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/internal/sqlconn"
	"github.com/txlock/txlock/internal/identifier"
	"github.com/txlock/txlock/internal/locktable"
)

// Script is what one round trip carries. Texts are few and constant, so that prepared statements
// serve them. What varies is in the arguments, which are text: PostgreSQL infers a parameter's type
// from the column that it is compared with.
type Script []Statement

// Statement is one of them, with $1 and so on for its arguments. It says what a sender would else
// have to read in its text. That is sent as it is: whoever makes one of the library's own has it
// [identifier.Qualified].
type Statement struct {
	SQL  string
	Args []any // strings, unless it is the caller's

	Silent bool // it returns no rows, or none that anybody reads
	Opens  bool // what follows in the script may wait, and can be undone once it has run

	Work bool  // it is a statement of the caller's, not the library's own
	Into []any // where its first row goes; nil: nowhere
}

// Silent is a statement that returns no rows.
func Silent(sql string, args ...any) Statement { return Statement{SQL: sql, Args: args, Silent: true} }

// Text is a script as one query without arguments: they stand in the text as literals. Quotes and
// quoted names are left as they are.
func (s Script) Text() (string, error) {
	var failed error
	texts := make([]string, len(s))
	for i, statement := range s {
		if texts[i] = statement.SQL; len(statement.Args) == 0 {
			continue
		}
		texts[i] = places.ReplaceAllStringFunc(statement.SQL, func(place string) string {
			number, err := strconv.Atoi(strings.TrimPrefix(place, "$"))
			if err != nil { // in quotes
				return place
			}
			if number < 1 || number > len(statement.Args) { // in a condition of the caller's
				failed = fmt.Errorf("there is no argument for %s", place)
				return place
			}
			text := statement.Args[number-1].(string)
			if strings.ContainsRune(text, 0) {
				failed = errors.New("text in PostgreSQL is without NUL")
			}
			return Literal(text)
		})
	}
	return strings.Join(texts, "; "), failed
}

// places are those of arguments, and quotes and quoted names, where none is one.
var places = regexp.MustCompile(`'[^']*'|"[^"]*"|\$\d+`)

// Literal is a text in quotes, whatever standard_conforming_strings is: newer servers show some
// bytes of an application's name as \x…. The space keeps the E apart from a name in front.
func Literal(text string) string {
	opening := "'"
	if strings.Contains(text, `\`) {
		opening = " E'"
	}
	return opening + literalEscapes.Replace(text) + "'"
}

var literalEscapes = strings.NewReplacer(`\`, `\\`, "'", "''")

// ArrayOf is the text form of an array. Elements are in double quotes, with \ before " and \
// (manual, section 8.15.6).
func ArrayOf[T string | int64](elements []T) string {
	quoted := make([]string, len(elements))
	for i, element := range elements {
		quoted[i] = `"` + arrayEscapes.Replace(fmt.Sprint(element)) + `"`
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

var arrayEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// QuoteTable quotes the name of a table as its user spells it, with its schema or without.
func QuoteTable(name string) (string, error) { return identifier.Quote(name, '"', 2) }

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

// Tag begins a query of several statements, and the rest of a comment says whose it is.
const Tag = "/* txlock "

// SQLSTATEs (manual, appendix A) that mean something to a lock.
const (
	DivisionByZero   = "22012" // the proof raises it on purpose
	InvalidText      = "22P02" // failSQL raises it on purpose
	TooLate          = "25001" // for a level: pgx had dropped some statements, and prepared them in front
	NoTransaction    = "25P01"
	AbortedBefore    = "25P02"
	ReadOnly         = "25006" // a standby, or a primary that is about to be one
	NotSupported     = "0A000" // of a standby, for a transaction that may write
	Serialization    = "40001"
	DeadlockDetected = "40P01"
	UnknownStatement = "26000" // prepared, as the client library believes
	KnownStatement   = "42P05"
	NoPrivilege      = "42501"
	UndefinedColumn  = "42703"
	UndefinedTable   = "42P01"
	UndefinedSchema  = "3F000"
	LockNotAvailable = "55P03" // NOWAIT, and lock_timeout
	QueryCanceled    = "57014" // our interrupt, and statement_timeout
)

// Broken tells whether err means that the session is gone: not after an error of the server's that
// is not fatal, nor when nothing was sent.
func Broken(err error) bool {
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg):
		severity := cmp.Or(pg.SeverityUnlocalized, pg.Severity) // pgpool-II sends the latter alone
		return severity == "FATAL" || severity == "PANIC"
	case State(err) != "": // of another driver
		return isOneOf(fatal, State(err))
	case err == nil, errors.As(err, new(unfitError)),
		errors.Is(err, pgx.ErrTxClosed), errors.Is(err, sql.ErrTxDone): // the caller's transaction, not the session
		return false
	}
	return errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, sql.ErrConnDone) || !pgconn.SafeToRetry(err) ||
		errors.As(err, new(*net.OpError)) // which pgx calls safe where nothing could be written
}

// Answered tells whether err is the server's own answer, behind which nothing has run. Any other
// FATAL error may be a pooler's, which has lost the server, and its answers.
func Answered(err error) bool {
	return State(err) != "" && (!Broken(err) || isOneOf(fatal[1:], State(err)))
}

// Identity asks who the server is: for the extensions that make it a node of a cluster whose nodes
// all take writes. Locks of either kind stay on their node, and rows travel later.
//
// Engines that speak the protocol, and lack what a lock needs, fail by themselves: CockroachDB has
// no pg_advisory_xact_lock before 26.2, YugabyteDB none by default.
//
// It also asks for the settings without which the library's texts and the caller's names would mean
// something else. Where pg_catalog is not the first schema in which an operator is looked for,
// anybody's could run. So those of this text say whose they are.
var Identity = Statement{SQL: identifier.Qualified(
	"select concat('it has the extension ', extname) from pg_extension " +
		"where extname operator(pg_catalog.=) any(array['pgactive', 'bdr']::name[]) " +
		"union all select concat('client_encoding=', current_setting('client_encoding')) " +
		"union all select concat('standard_conforming_strings=', current_setting('standard_conforming_strings')) " +
		"union all select concat('search_path=', array_to_string(current_schemas(true), ','))")}

// Refuse is an error where the answer is that of a server which does not exclude.
func Refuse(answer []string) error {
	for _, reason := range answer {
		setting, value, is := strings.Cut(reason, "=")
		if !is {
			return locktable.ManyWriters(reason)
		}
		if err := Unfit(setting, value); err != nil {
			return err
		}
	}
	return nil
}

// Unfit is an error where a setting changes what the library's texts and callers' names mean.
func Unfit(setting, value string) error {
	if needed := identifier.Needed(setting, value); needed != "" {
		return unfitError(fmt.Sprintf("the connection has %s = %s, and must have %[1]s = %[3]s, or begin with that: "+
			"its pool asks for it in the connection string, or the role has it", setting, value, needed))
	}
	return nil
}

// unfitError is of a session that lives on.
type unfitError string

func (e unfitError) Error() string { return string(e) }

// fatal are classes of SQLSTATEs behind which the server ends the session, and single ones.
var fatal = []string{
	"08",    // connection exception
	"57P",   // the server stops, or ends a session
	"25P03", // idle_in_transaction_session_timeout: the lease
	"25P04", // transaction_timeout
}

func isOneOf(prefixes []string, state string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(state, prefix) })
}

// State is the SQLSTATE of an error of the server. Drivers have two ways to tell it.
func State(err error) string {
	var stated interface{ SQLState() string }   // pgx, lib/pq
	var fielded interface{ Field(byte) string } // pgdriver of bun
	switch {
	case errors.As(err, &stated):
		return stated.SQLState()
	case errors.As(err, &fielded):
		return fielded.Field('C')
	}
	return ""
}

// ErrAborted is for work that swallowed the error of a failed statement: PostgreSQL takes no
// savepoint in such a transaction, and cannot commit it.
var ErrAborted = fmt.Errorf("a statement failed before in the same transaction, and was not rolled back to a "+
	"savepoint: %w", pgx.ErrTxCommitRollback)

// Classify adds to err what it means for a lock in request.
func Classify(err error, request dialects.Request) error {
	switch State(err) {
	case AbortedBefore:
		return ErrAborted
	case LockNotAvailable, QueryCanceled:
		return fmt.Errorf("%w: %w", dialects.ErrNotAcquired, err)
	case DeadlockDetected:
		if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) && pg.Detail != "" { // who waited for whom
			err = fmt.Errorf("%w (%s)", err, strings.ReplaceAll(pg.Detail, "\n", " "))
		}
		return fmt.Errorf("%w: %w", dialects.ErrDeadlock, err)
	case Serialization:
		return fmt.Errorf("%w: %w", dialects.ErrIsolation, err)
	case UndefinedTable, UndefinedColumn, UndefinedSchema:
		of := request.Fence
		fenceless := locktable.NoFence(of, err, of+locktable.Epochs, of+locktable.Runs, of+Tokens,
			"column server")
		switch {
		case of != "" && errors.Is(fenceless, dialects.ErrNotInstalled):
			return fenceless
		case !request.Callers:
			return locktable.NotInstalled(request.Table, err)
		}
	}
	if State(err) != "" && !Broken(err) && request.Slots == 0 && !request.Ours {
		return dialects.RefusedError{Err: err}
	}
	return err
}

// Ours is Classify for a statement on a table of txlock's own.
func Ours(err error, table string) error {
	if State(err) == NoPrivilege {
		return fmt.Errorf("%w: %w", dialects.ErrNotPermitted, err)
	}
	return Classify(err, dialects.Request{Table: table, Ours: true})
}

// mayPass are those that may pass by themselves, besides the fatal ones.
var mayPass = []string{
	"40", // transaction rollback
	"53", // insufficient resources: too many connections, say
	ReadOnly,
	LockNotAvailable, QueryCanceled, // a limit of the role's on a wait
}

// Outcome does what Classify of dialects.Driver promises.
func Outcome(err error) dialects.Outcome {
	state := State(err)
	switch {
	case state == DeadlockDetected:
		return dialects.Deadlock
	case isOneOf(fatal, state), isOneOf(mayPass, state),
		state == "" && (sqlconn.Failed(err) || errors.As(err, new(*pgconn.ConnectError)) ||
			errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, fencing.ErrNoRun)):
		return dialects.Passing
	}
	return dialects.Final
}
