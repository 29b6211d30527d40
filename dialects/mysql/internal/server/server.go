// Package server is MySQL and MariaDB: what their errors mean for a lock, and the pieces of SQL of
// locks and of pictures of them.
package server

import (
	"cmp"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/go-sql-driver/mysql"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/internal/sqlconn"
	"github.com/txlock/txlock/internal/identifier"
	"github.com/txlock/txlock/internal/locktable"
)

// Numbers of errors that mean something to a lock: see the servers' references.
const (
	RowChanged       = 1020 // MariaDB, innodb_snapshot_isolation: the transaction is rolled back
	NodeNotReady     = 1047 // Galera
	UnknownDatabase  = 1049
	ServerShutdown   = 1053
	UnknownColumn    = 1054
	UnknownError     = 1105
	NoPrivilege      = 1142
	NoSuchTable      = 1146
	LockWaitTimeout  = 1205 // on MariaDB also NOWAIT
	LockDeadlock     = 1213 // the transaction is rolled back
	WrongArguments   = 1210
	WrongValue       = 1231 // of a variable
	SeveralRows      = 1242 // of a subquery that must have one
	OnlyReads        = 1290 // read_only, as ReadOnlyMode
	NoSuchSavepoint  = 1305
	QueryInterrupted = 1317 // KILL QUERY
	InTransaction    = 1568 // so that its characteristics cannot be changed
	ReadOnlyMode     = 1836
	ConnectionKilled = 1927 // MariaDB
	StatementTimeout = 1969 // MariaDB, max_statement_time
	QueryTimeout     = 3024 // MySQL, MAX_EXECUTION_TIME
	SessionKilled    = 3169 // MySQL
	lockNowait       = 3572 // MySQL, NOWAIT
)

// Number is the server's number of an error, 0 of an error that no server sent.
func Number(err error) uint16 {
	if err == nil {
		return 0
	}
	var server *mysql.MySQLError
	if errors.As(err, &server) {
		return server.Number
	}
	return 0
}

// IsDeadlock tells whether the server has rolled the whole transaction back for another's sake.
func IsDeadlock(err error) bool { return Number(err) == LockDeadlock || Number(err) == RowChanged }

// Classify adds to err what it means for a lock in request.
func Classify(err error, request dialects.Request) error {
	if IsDeadlock(err) {
		return fmt.Errorf("%w: the server rolled the whole transaction back: %w", dialects.ErrDeadlock, err)
	}
	switch Number(err) {
	case LockWaitTimeout, QueryInterrupted, StatementTimeout, QueryTimeout, lockNowait:
		return fmt.Errorf("%w: %w", dialects.ErrNotAcquired, err)
	case NodeNotReady:
		return fmt.Errorf("this node of a Galera cluster takes no statements, because it does not reach the majority "+
			"of the nodes, or has not caught up with them: connect to another: %w", err)
	case NoSuchTable, UnknownColumn, UnknownDatabase:
		if !request.Callers {
			return locktable.NotInstalled(request.Table, err)
		}
	case 0, ServerShutdown, ConnectionKilled, SessionKilled:
		return err // no answer, or none that this session outlives
	}
	if !request.Ours {
		return dialects.RefusedError{Err: err}
	}
	return err
}

// Ours is Classify for a statement on a table of txlock's own.
func Ours(err error, table string) error {
	if Number(err) == NoPrivilege {
		return fmt.Errorf("%w: %w", dialects.ErrNotPermitted, err)
	}
	return Classify(err, dialects.Request{Table: table, Ours: true})
}

// Lost says that the session has lost the transaction that took the locks.
func Lost(err error) error {
	if Number(err) == NoSuchSavepoint && !errors.Is(err, dialects.ErrLost) {
		return fmt.Errorf("%w: the transaction that took the lock ended before its work did, by a deadlock, COMMIT, "+
			"ROLLBACK or DDL; what came after it is not committed: %w", dialects.ErrLost, err)
	}
	return dialects.Lost(err)
}

// Interrupted tells whether somebody, or a limit, has ended the statement and nothing else.
func Interrupted(err error) bool {
	number := Number(err)
	return number == QueryInterrupted || number == StatementTimeout || number == QueryTimeout
}

// Ended tells whether the server has ended the session.
func Ended(err error) bool {
	number := Number(err)
	return number == ServerShutdown || number == ConnectionKilled || number == SessionKilled
}

// Broken tells whether the client library has given the connection up, or has found there what
// nobody asked for: before it closes a session that was idle for too long, MySQL sends an error.
// Aurora goes on, and says once that the transaction "was aborted due to Zero Downtime Restart".
func Broken(err error) bool {
	aborted := Number(err) == UnknownError && strings.Contains(err.Error(), "The last transaction was aborted due to")
	return aborted || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, mysql.ErrPktSync) ||
		errors.Is(err, mysql.ErrMalformPkt) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
}

// ErrBusy says that nothing can be sent yet, and that nothing is lost.
var ErrBusy = errors.New("rows of a query of the work are still open on this connection, or it is broken: close " +
	"them first")

// Outcome does what Classify of dialects.Driver promises.
func Outcome(err error) dialects.Outcome {
	switch Number(err) {
	case LockDeadlock, RowChanged:
		return dialects.Deadlock
	case 1040, 1203, 1226, // too many connections, of the user, of the account
		1792, OnlyReads, ReadOnlyMode, NodeNotReady, // 1792: the transaction is read only
		3032, 4031, ServerShutdown, ConnectionKilled, SessionKilled, // offline_mode, idle for too long
		LockWaitTimeout, QueryInterrupted, StatementTimeout, QueryTimeout:
		return dialects.Passing
	}
	if sqlconn.Failed(err) || Broken(err) || errors.Is(err, fencing.ErrNoRun) {
		return dialects.Passing
	}
	return dialects.Final
}

const (
	// Sharing locks rows against writers only, as FOR UPDATE does against everybody.
	Sharing = "/*!80001 FOR SHARE */ /*M! LOCK IN SHARE MODE */"
	// SkipLocked goes behind either of them.
	SkipLocked = " SKIP LOCKED"

	// SomeWait goes with SKIP LOCKED. Where innodb_lock_wait_timeout is 0, MariaDB answers error
	// 1180 for a held row and undoes what the transaction has written, which goes on.
	SomeWait = "innodb_lock_wait_timeout=1"
	// LongWait is the most that MariaDB takes: with the sql_mode TRADITIONAL, more is an error.
	LongWait = "innodb_lock_wait_timeout=100000000"

	// Isolation is the variable on MySQL, and on MariaDB, where 11.1 is the first with that name.
	Isolation = "/*!80001 @@session.transaction_isolation */ /*M! @@session.tx_isolation */"

	// AtReadCommitted sets the level at which what is read under a lock is not older than the lock.
	AtReadCommitted = Isolation + " = 'READ-COMMITTED'"

	// Writable is the condition under which a shared lock excludes. A server that is read_only
	// grants it, and refuses FOR UPDATE with error 1290. One with innodb_read_only locks nothing.
	// Text is compared: MySQL has numbers, MariaDB words.
	Writable = "CONCAT(@@read_only, @@innodb_read_only) IN ('00', 'OFFOFF')"
)

// OnMariaDB sets variables for the statement behind it. To MySQL it is a comment.
func OnMariaDB(settings ...string) string {
	if len(settings) == 0 {
		return ""
	}
	return "/*M! SET STATEMENT " + strings.Join(settings, ", ") + " FOR */ "
}

var plainText = regexp.MustCompile("^[A-Za-z0-9 _.,:;@/#()=+`-]*$")

// Literal is a string literal, also for a number: a number compared with a string column would
// defeat its index. All sql_modes and character sets read hexadecimal alike, and plain text.
func Literal(value dialects.Value) (string, error) {
	switch {
	case value.Binary:
		return fmt.Sprintf("x'%x'", value.Text), nil
	case plainText.MatchString(value.Text):
		return "'" + value.Text + "'", nil
	case !utf8.ValidString(value.Text):
		return "", fmt.Errorf("text is not valid UTF-8; give a []byte for a binary column")
	}
	return fmt.Sprintf("_utf8mb4 x'%x'", value.Text), nil
}

// QuoteTable quotes the name of a table as its user spells it, with or without that of a database.
func QuoteTable(name string) (string, error) { return identifier.Quote(name, '`', 2) }

// QuoteColumn quotes the name of a column as its user spells it.
func QuoteColumn(name string) (string, error) { return identifier.Quote(name, '`', 1) }

// Beside names the tables beside a lock table, quoted. The server refuses names that are too long.
func Beside(table string) (beside func(suffix string) string, err error) {
	quoted, err := QuoteTable(table)
	stem := strings.TrimSuffix(quoted, "`")
	return func(suffix string) string { return stem + suffix + "`" }, err
}

// Table is a table as the server's views name it.
type Table struct{ Database, Name string }

// TableOf reads a name in backquotes, whatever is behind it. Without a database it is in that one.
func TableOf(quoted, database string) Table {
	names := inBackquotes.FindStringSubmatch(quoted)
	if names == nil {
		return Table{database, ""}
	}
	single := strings.NewReplacer("``", "`")
	return Table{cmp.Or(single.Replace(names[1]), database), single.Replace(names[2])}
}

var inBackquotes = regexp.MustCompile("^(?:`((?:[^`]|``)*)`\\.)?`((?:[^`]|``)*)`")

// Is is the condition that two columns name the table, whose names must be valid UTF-8. The bare
// columns let the server look it up. Without a database it is in the session's.
func (t Table) Is(database, name string) string {
	first := "DATABASE()"
	if t.Database != "" {
		first, _ = Literal(dialects.Value{Text: t.Database})
	}
	second, _ := Literal(dialects.Value{Text: t.Name})
	return database + " = " + first + " AND " + name + " = " + second
}

// CommentMark begins the comments of txlock's statements. Behind it is a label, or a purpose.
const CommentMark = "/* txlock "

// Comment is that of a statement, which tag names. Labels have no * and no quotes.
func Comment(label, tag string) string { return CommentMark + tag + label + " */ " }

// LabelIn is the label in a statement's comment, or empty.
func LabelIn(statement string) string {
	_, comment, _ := strings.Cut(statement, CommentMark)
	comment, _, _ = strings.Cut(comment, " */")
	if _, label, found := strings.Cut(comment, "#"); found {
		return "#" + label
	}
	return ""
}
