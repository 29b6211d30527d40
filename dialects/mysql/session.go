package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/missing"
)

const (
	// savepoint is set in the transaction that took the lock before work runs in it. It can be
	// released as long as that transaction lives: a deadlock rolls all of it back, COMMIT and DDL
	// end it, and no later one has the savepoint.
	savepoint = "txlock"

	// On a caller's pool the session's settings are changed and restored behind the lock:
	// autocommit, which also begins the transaction, and wait_timeout, which is the lease.
	guardSQL = "SET @txlock_autocommit = @@autocommit, @txlock_wait_timeout = @@wait_timeout, autocommit = 0, " +
		"wait_timeout = "
	unguardSQL = "SET autocommit = @txlock_autocommit, wait_timeout = @txlock_wait_timeout, " + forgetSQL
	forgetSQL  = "@txlock = NULL, @txlock_autocommit = NULL, @txlock_wait_timeout = NULL, @txlock_run = NULL"

	// releaseSQL also ends a transaction that has written nothing, in one trip: a server that is
	// told to switch autocommit on commits (MySQL manual, section 15.3.1).
	releaseSQL = "SET autocommit = 1, autocommit = @txlock_autocommit, wait_timeout = @txlock_wait_timeout, " +
		forgetSQL

	// cleanUpTimeout bounds what is sent after a failure to put a connection right.
	cleanUpTimeout = 5 * time.Second
)

// session is a pooled connection with its transaction.
//
// On a pool of Open, statements go through tx as long as it is open: a statement of conn that finds
// the connection broken would close conn, and wait for tx in that.
type session struct {
	driver     *Driver
	conn       *sql.Conn
	socket     net.Conn // of conn; nil when it cannot be seen
	tx         *sql.Tx  // nil as long as no work needs it
	loan       *loan    // of which tx is, on a caller's pool
	fence      string   // whose run is in the session's variable; empty: none
	settled    bool     // on a caller's pool: the settings are changed
	guarded    bool     // the savepoint is set: work runs, or ran, in the session
	current    bool     // what is read is never older than the lock: the session is at READ COMMITTED
	worked     bool
	savepoints int
}

func (s *session) begin(ctx context.Context, request dialects.Request) (token int64, err error) {
	s.current, s.guarded = s.driver.owned || request.Work, false
	if err := s.settle(ctx, request); err != nil {
		return 0, err
	}
	if request.Work && !s.driver.owned { // for the transaction that begins with the next statement
		if _, err := s.conn.ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"); err != nil {
			return 0, err
		}
	}
	if !request.Work {
		return s.driver.lock(ctx, s.conn, request, asFirst, false)
	}
	if s.driver.owned {
		s.guarded = true
	} else if err := s.handle(); err != nil { // of a connection that cannot be lent, before it waits
		return 0, err
	}
	token, err = s.driver.lock(ctx, s.conn, request, asFirst, s.driver.owned)
	if err != nil {
		return 0, err
	}
	if s.driver.owned { // not before: database/sql would start a goroutine for the rows of the handle
		return token, s.handle()
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	return token, s.guard(clean)
}

// settle makes the session's settings what a lock needs. On a pool of Open they stay, so that this
// costs a trip the first time alone.
func (s *session) settle(ctx context.Context, request dialects.Request) error {
	text := guardSQL
	owned := s.owned()
	if owned != nil {
		if s.fence = owned.fence; owned.lease == request.Lease && (request.Fence == "" || request.Fence == s.fence) {
			return nil
		}
		text = "SET wait_timeout = "
		// The pool lets its idle connections go before the server does.
		s.driver.db.SetConnMaxIdleTime(request.Lease / 2)
	}
	text += strconv.Itoa(int((request.Lease + time.Second - 1) / time.Second))
	if owned == nil && !s.driver.mute.Load() {
		text += ", " + announceSQL(request)
	}
	var f fence
	if request.Fence != "" {
		var err error
		if f, err = fenceOf(request.Fence); err != nil {
			return err
		}
		text += ", " + f.read()
	}
	if owned != nil {
		owned.lease, owned.fence = 0, "" // until it is known what the session has
	}
	if _, err := s.conn.ExecContext(ctx, text); err != nil {
		return f.explain(request.Fence, err)
	}
	s.fence, s.settled = request.Fence, true
	if owned != nil {
		owned.lease, owned.fence = request.Lease, request.Fence
	}
	return nil
}

// lift numbers the server's run, which settle reads then.
func (s *session) lift(ctx context.Context, table string) error {
	if owned := s.owned(); owned != nil {
		owned.fence = ""
	}
	return lift(ctx, s.conn, table)
}

// owned is the connection of a pool of Open.
func (s *session) owned() (owned *ownedConn) {
	_ = s.conn.Raw(func(conn any) error {
		owned, _ = conn.(*ownedConn)
		return nil
	})
	return owned
}

// handle presents the session as a *sql.Tx.
func (s *session) handle() (err error) {
	switch {
	case s.tx != nil:
	case s.driver.owned: // sends nothing
		s.tx, err = s.conn.BeginTx(context.Background(), nil)
	default:
		if s.loan, err = lend(s.conn); err == nil {
			s.tx = s.loan.tx
		}
	}
	return err
}

// statements is what the session's statements go through.
func (s *session) statements() querier {
	if s.tx == nil || s.loan != nil {
		return s.conn
	}
	return s.tx
}

func (s *session) exec(ctx context.Context, query string) error {
	_, err := s.statements().ExecContext(ctx, query)
	return err
}

// explain says which of the rows that could not be locked exist.
func (s *session) explain(ctx context.Context, request dialects.Request) error {
	query, err := existSQL(request)
	if err != nil {
		return err
	}
	existing, err := firstColumn(ctx, s.statements(), query)
	if err != nil {
		return classify(err, request)
	}
	return missing.Rows(request, valuesOf(request, existing))
}

func (s *session) Tx() *sql.Tx { return s.tx }

func (s *session) Socket() net.Conn { return s.socket }

func (s *session) Ping(ctx context.Context) error {
	_, err := firstColumn(ctx, s.statements(), "SELECT "+pingMark+"1")
	switch number(err) {
	case queryInterrupted, statementTimeout, queryTimeout:
		// an answer too: somebody's KILL QUERY, which ends no session
		return nil
	}
	return err
}

func (s *session) Join(ctx context.Context, request dialects.Request) (int64, error) {
	if s.worked && !s.current && !s.readsCommitted(ctx) {
		return 0, fmt.Errorf("%w: work that ran in this session may have read, and at REPEATABLE READ what is read "+
			"now could be older than "+
			"the lock; use mysql.Open, lock all keys first, or begin with Do", dialects.ErrIsolation)
	}
	if err := s.readRun(ctx, request.Fence); err != nil {
		return 0, err
	}
	token, err := s.driver.guestLock(ctx, s.statements(), request, asFurther)
	if errors.Is(err, dialects.ErrDeadlock) {
		return 0, lost(err)
	}
	return token, err
}

// readRun makes tokens possible in a session that began without them. It does not lift in its own
// transaction, and the pool may be waiting for this very session.
func (s *session) readRun(ctx context.Context, table string) error {
	if table == "" || table == s.fence {
		return nil
	}
	f, err := fenceOf(table)
	if err != nil {
		return err
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	owned := s.owned()
	if owned != nil {
		owned.fence = "" // until it is known what the variable holds
	}
	for range 2 {
		if err := s.exec(clean, "SET "+f.read()); err != nil {
			return f.explain(table, err)
		}
		run, err := firstColumn(clean, s.statements(), "SELECT @txlock_run IS NULL")
		if err != nil {
			return err
		}
		if len(run) == 1 && run[0] == "0" {
			s.fence = table
			if owned != nil {
				owned.fence = table
			}
			return nil
		}
		brief, cancel := context.WithTimeout(ctx, time.Second)
		err = s.driver.withConn(brief, func(conn *sql.Conn) error { return lift(brief, conn, table) })
		cancel()
		if err != nil {
			return err
		}
	}
	return errNoRun
}

// readsCommitted tells whether the session's transactions, of which this is an ordinary one, read
// what is committed at each statement. The variable has one name on MySQL and another on MariaDB
// before 11.1.
func (s *session) readsCommitted(ctx context.Context) bool {
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	var name, level string
	rows, err := s.statements().QueryContext(clean, "SHOW SESSION VARIABLES WHERE Variable_name IN "+
		"('transaction_isolation', 'tx_isolation')")
	if err != nil {
		return false
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&name, &level); err != nil {
			return false
		}
	}
	return rows.Err() == nil && (level == "READ-COMMITTED" || level == "SERIALIZABLE")
}

func (s *session) Nest(ctx context.Context, work func(tx *sql.Tx) error) error {
	s.worked = true
	s.savepoints++
	name := savepoint + "_" + strconv.Itoa(s.savepoints)
	// the connection is closed when ctx ends
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	err := s.handle()
	if err == nil {
		err = s.guard(clean)
	}
	if err == nil {
		err = s.exec(clean, "SAVEPOINT "+name)
	}
	cancel()
	if err != nil {
		return lost(err)
	}
	done := false
	end := func(verb string) error {
		done = true
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
		defer cancel()
		return lost(s.exec(clean, verb+" SAVEPOINT "+name))
	}
	defer func() { // also when work panics
		if !done {
			_ = end("ROLLBACK TO") // what is wrong with the session shows in its end
		}
	}()
	if err := work(s.tx); err != nil {
		if undone := end("ROLLBACK TO"); undone != nil {
			return undone
		}
		return err
	}
	return end("RELEASE")
}

// guard makes the session safe for work.
func (s *session) guard(ctx context.Context) error {
	if s.guarded {
		return nil
	}
	s.guarded = true
	return s.exec(ctx, "SAVEPOINT "+savepoint)
}
