package client

import (
	"cmp"
	"context"
	"database/sql/driver"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/go-sql-driver/mysql"
	"github.com/txlock/txlock/dialects/internal/statements"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// connector opens the connections of a pool of Open. Their settings save round trips, and keep what
// is read and written under the lock:
//
//   - autocommit=0: the first statement begins a transaction, without a trip for BEGIN. And a
//     deadlock, whose error the work may swallow, is followed by a new transaction: the next
//     statements do not commit one by one.
//   - READ COMMITTED: what is read under a lock is never older than the lock. See sqltext.Level.
//   - innodb_lock_wait_timeout: a waiter stays in the queue as long as its context allows, not for
//     50 s.
type connector struct {
	driver.Connector
	puts bool // arguments of the work into the text: the dsn says so
}

// Settings is the statement that gives a connection of Open its settings. A lease may follow.
const Settings = "SET autocommit = 0, " + sqltext.LongWait + ", " + sqltext.Isolation + " = " + sqltext.Level + ", " +
	"/*!80001 @@session.transaction_read_only */ /*M! @@session.tx_read_only */ = 0"

func newConnector(config *mysql.Config) (driver.Connector, error) {
	config.MultiStatements = true
	config.ReadTimeout = 0 // the answer to a lock comes when it is granted; a dead network shows without it
	puts := config.InterpolateParams
	config.InterpolateParams = puts || quotesSafely(config) // for Fly
	inner, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return connector{inner, puts}, nil
}

// quotesSafely tells whether a quote, as the driver escapes it, is never part of another character:
// in UTF-8, which is the default, it is not.
func quotesSafely(config *mysql.Config) bool {
	names := "utf8"
	if _, given, ok := strings.Cut(config.FormatDSN(), "charset="); ok {
		names, _, _ = strings.Cut(given, "&")
	}
	for _, name := range append(strings.Split(names, ","), cmp.Or(config.Collation, "utf8")) {
		if !strings.HasPrefix(name, "utf8") {
			return false
		}
	}
	return true
}

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	opened, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	inner, err := statementsOf(opened)
	if err == nil {
		if _, err = inner.ExecContext(ctx, Settings, nil); err != nil {
			err = fmt.Errorf("set up session: %w", err)
		}
	}
	if err != nil {
		_ = opened.Close()
		return nil, err
	}
	return &Owned{pooledConn: inner, socket: socketOf(opened), puts: c.puts}, nil
}

// pooledConn is a connection of go-sql-driver/mysql, with what database/sql uses of it.
type pooledConn interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter // finds a connection that died while it was idle
	driver.Validator
}

func statementsOf(conn driver.Conn) (statements pooledConn, err error) {
	statements, ok := conn.(pooledConn)
	if !ok {
		err = fmt.Errorf("txlock needs connections of go-sql-driver/mysql; %T lacks methods of theirs", conn)
	}
	return statements, err
}

// Owned is a connection of a pool of Open. Its transactions begin for free.
type Owned struct {
	pooledConn
	Lease  time.Duration // that the server keeps; 0: nobody knows the settings
	socket net.Conn      // nil when it cannot be seen
	ending atomic.Pointer[ending]
	puts   bool // as connector has it
	works  bool // statements of the work may come
	strays bool // in the session, names may mean other tables
}

// ending is how COMMIT or ROLLBACK is sent.
type ending struct {
	ctx    context.Context
	behind string
}

// EndIn gives COMMIT or ROLLBACK of the transaction a context, and a statement that follows it in
// the same query, if that is not empty.
func (c *Owned) EndIn(ctx context.Context, behind string) { c.ending.Store(&ending{ctx, behind}) }

// Close implements driver.Conn. That the server cannot be told is no error: it has closed the
// connection while it was idle.
func (c *Owned) Close() error {
	_ = c.pooledConn.Close()
	return nil
}

// BeginTx implements driver.ConnBeginTx.
func (c *Owned) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	c.ending.Store(nil)
	c.works = true
	return ownedTx{c}, nil
}

// ExecContext implements driver.ExecerContext.
func (c *Owned) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.watch(query)
	if len(args) > 0 && !c.puts {
		return nil, driver.ErrSkip
	}
	return c.pooledConn.ExecContext(ctx, query, args)
}

// QueryContext implements driver.QueryerContext.
func (c *Owned) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.watch(query)
	if len(args) > 0 && !c.puts {
		return nil, driver.ErrSkip
	}
	return c.pooledConn.QueryContext(ctx, query, args)
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *Owned) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.watch(query)
	return c.pooledConn.PrepareContext(ctx, query)
}

// watch has the next lock set the session's settings anew, unless it is certain that a statement of
// the work leaves them alone. Work that leaves autocommit on would end each later lock with the
// statement that takes it. To set them for each lock would cost MariaDB 35 µs.
func (c *Owned) watch(query string) {
	if c.works && !LeavesSettings(query) {
		c.Lease = 0
		c.strays = c.strays || renames.MatchString(query)
	}
}

// IsValid implements driver.Validator. The pool closes a connection on which names may mean other
// tables: there nobody is excluded with them.
func (c *Owned) IsValid() bool { return !c.strays && c.pooledConn.IsValid() }

// renames is in each statement that changes the default database, or hides a table by a temporary
// one. Others that have it are a guess.
var renames = regexp.MustCompile(`(?i)\b(use|temporary)\b`)

// LeavesSettings tells whether a statement by itself changes no setting, whatever a function or a
// trigger does that it calls. Others are a guess: SET, CALL, several statements. What stands in the
// comment of OnMariaDB is in force for its statement alone: so begin the nested locks of this
// library, which have a key in another comment, and may have a savepoint in front.
func LeavesSettings(query string) bool {
	query = ownSavepoint.ReplaceAllLiteralString(query, "")
	if text, ours := strings.CutPrefix(query, sqltext.OnMariaDBOnly); ours {
		_, query, _ = strings.Cut(text, "*/")
	}
	if strings.Contains(query, sqltext.CommentMark) {
		query = ownComment.ReplaceAllLiteralString(query, "")
	}
	query = strings.TrimLeft(statements.Bare(query), " \t\r\n(")
	end := strings.IndexFunc(query, func(r rune) bool { return !unicode.IsLetter(r) })
	switch strings.ToUpper(query[:max(end, 0)]) {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "SAVEPOINT", "RELEASE":
		return !strings.Contains(query, ";")
	}
	return false
}

var (
	ownSavepoint = regexp.MustCompile(`^SAVEPOINT txlock_\d+; `)
	ownComment   = regexp.MustCompile(regexp.QuoteMeta(sqltext.CommentMark) + `[^*]*\*/`)
)

type ownedTx struct{ conn *Owned }

const (
	// Save sets a savepoint in the transaction that took the lock, before work runs in it. It can
	// be released as long as that transaction lives: a deadlock rolls all of it back, COMMIT and
	// DDL end it, and no later one has the savepoint.
	Save = "SAVEPOINT txlock"
	// Release succeeds in that transaction alone.
	Release = "RELEASE " + Save
)

// Commit commits the transaction that has the savepoint, and no other: where Release fails, the
// server does not run the statement behind it.
func (t ownedTx) Commit() error { return t.end(Release + "; COMMIT") }

// Rollback implements driver.Tx.
func (t ownedTx) Rollback() error { return t.end("ROLLBACK") }

func (t ownedTx) end(query string) error {
	t.conn.works = false
	ctx := context.Background()
	if ending := t.conn.ending.Load(); ending != nil {
		ctx = ending.ctx
		if ending.behind != "" {
			query += "; " + ending.behind
		}
	}
	_, err := t.conn.ExecContext(ctx, query, nil)
	return err
}
