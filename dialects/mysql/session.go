package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/txlock/txlock/dialects"
)

const (
	// savepoint is set in the transaction that took the lock before work runs in it. It can be released as long as that
	// transaction lives: a deadlock rolls all of it back, COMMIT and DDL end it, and no later one has the savepoint.
	savepoint = "txlock"

	// On a caller's pool the settings that protect the work are set for the session and restored behind it.
	guardSQL   = "SET @txlock_autocommit = @@autocommit, autocommit = 0"
	unguardSQL = "SET autocommit = @txlock_autocommit, @txlock_autocommit = NULL"

	// cleanUpTimeout bounds what is sent after a failure to put a connection right.
	cleanUpTimeout = 5 * time.Second
)

// session is a pooled connection with its transaction.
//
// Statements go through tx as long as it is open: a statement of conn that finds the connection broken would close conn,
// and wait for tx in that.
type session struct {
	driver     *Driver
	conn       *sql.Conn
	tx         *sql.Tx // nil as long as nobody needs it: on a pool of Open a transaction begins with its first statement
	deserted   bool    // an ending that did not return in time still has the connection, and closes it
	guarded    bool    // autocommit is off, and the savepoint is set: work runs, or ran, in the session
	current    bool    // what is read is never older than the lock: the session is at READ COMMITTED
	worked     bool
	savepoints int
}

func (s *session) begin(ctx context.Context, request dialects.Request) (err error) {
	s.current = s.driver.owned || request.Work
	options := &sql.TxOptions{}
	if request.Work && !s.driver.owned {
		s.guarded = true
		if _, err := s.conn.ExecContext(ctx, guardSQL); err != nil {
			return err
		}
		options.Isolation = sql.LevelReadCommitted
	}
	if request.Work || !s.driver.owned {
		if err := s.beginTx(ctx, options); err != nil {
			return err
		}
	}
	behind := ""
	if request.Work && s.driver.owned {
		behind, s.guarded = "; SAVEPOINT "+savepoint, true
	}
	if err := s.driver.lock(ctx, s.statements(), request, behind); err != nil {
		return err
	}
	if request.Work && !s.driver.owned {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
		defer cancel()
		_, err = s.tx.ExecContext(clean, "SAVEPOINT "+savepoint)
	}
	return err
}

func (s *session) beginTx(ctx context.Context, options *sql.TxOptions) (err error) {
	// database/sql rolls back when the context of BeginTx ends: only while nothing is held may that be ctx.
	life, abandon := context.WithCancel(context.WithoutCancel(ctx))
	outlive := context.AfterFunc(ctx, abandon)
	if s.tx, err = s.conn.BeginTx(life, options); err != nil {
		abandon()
		return err
	}
	if !outlive() {
		return ctx.Err()
	}
	return nil
}

// statements is what the session's statements go through.
func (s *session) statements() querier {
	if s.tx == nil {
		return s.conn
	}
	return s.tx
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
	return request.Missed(valuesOf(request, existing))
}

func (s *session) Tx() *sql.Tx { return s.tx }

func (s *session) Join(ctx context.Context, request dialects.Request) error {
	if s.worked && !s.current && !s.readsCommitted(ctx) {
		return fmt.Errorf("%w: work that ran in this session may have read, and at REPEATABLE READ what is read now could be older than "+
			"the lock; use mysql.Open, lock all keys first, or begin with Do", dialects.ErrIsolation)
	}
	err := s.driver.guestLock(ctx, s.statements(), request)
	if errors.Is(err, dialects.ErrDeadlock) {
		return lost(err)
	}
	return err
}

// readsCommitted tells whether the session's transactions, of which this is an ordinary one, read what is committed at
// each statement. The variable has one name on MySQL and another on MariaDB before 11.1.
func (s *session) readsCommitted(ctx context.Context) bool {
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	var name, level string
	rows, err := s.tx.QueryContext(clean, "SHOW SESSION VARIABLES WHERE Variable_name IN ('transaction_isolation', 'tx_isolation')")
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
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout) // the connection is closed when ctx ends
	err := s.guard(clean)
	if err == nil {
		_, err = s.tx.ExecContext(clean, "SAVEPOINT "+name)
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
		_, err := s.tx.ExecContext(clean, verb+" SAVEPOINT "+name)
		return lost(err)
	}
	defer func() { // also when work panics
		if !done {
			_ = end("ROLLBACK TO") // what is wrong with the session shows in its end
		}
	}()
	if err := work(s.tx); err != nil {
		return errors.Join(err, end("ROLLBACK TO"))
	}
	return end("RELEASE")
}

// guard makes a session that was begun without work safe for it. Setting autocommit to 0 in a transaction commits
// nothing (setting it to 1 would).
func (s *session) guard(ctx context.Context) error {
	if s.guarded {
		return nil
	}
	if s.tx == nil {
		if err := s.beginTx(ctx, &sql.TxOptions{}); err != nil {
			return err
		}
	}
	if !s.driver.owned {
		if _, err := s.tx.ExecContext(ctx, guardSQL); err != nil {
			return err
		}
	}
	s.guarded = true
	_, err := s.tx.ExecContext(ctx, "SAVEPOINT "+savepoint)
	return err
}

func (s *session) Commit(ctx context.Context) error {
	defer s.close()
	var err error
	if !s.driver.owned { // ownedTx.Commit does both in one trip
		_, err = s.tx.ExecContext(ctx, "RELEASE SAVEPOINT "+savepoint)
	}
	if err == nil {
		err = s.end(ctx, (*sql.Tx).Commit)
	}
	switch {
	case err == nil:
		if err := s.restore(ctx); err != nil {
			destroy(s.conn) // the work is committed, and the connection's settings die with it
		}
		return nil
	case errors.Is(err, sql.ErrTxDone), number(err) == noSuchSavepoint:
		err = lost(err)
	case number(err) == 0:
		err = fmt.Errorf("%w: the connection broke before or during COMMIT, and whether it took place is unknown: %w", dialects.ErrLost, err)
	}
	return errors.Join(err, s.rollback(ctx))
}

func (s *session) Rollback(ctx context.Context) error {
	defer s.close()
	return lost(s.rollback(ctx))
}

func (s *session) close() {
	if !s.deserted {
		_ = s.conn.Close()
	}
}

// rollback ends whatever transaction is open and brings the session's settings back. A connection on which that cannot
// be confirmed is closed.
func (s *session) rollback(ctx context.Context) error {
	err := error(sql.ErrTxDone)
	if s.tx != nil {
		err = s.end(ctx, (*sql.Tx).Rollback)
	}
	if s.deserted {
		return err
	}
	if errors.Is(err, sql.ErrTxDone) { // the handle was closed by the caller, or a commit failed
		_, err = s.conn.ExecContext(ctx, "ROLLBACK")
	}
	if err == nil {
		err = s.restore(ctx)
	}
	if err != nil {
		destroy(s.conn)
	}
	return err
}

func (s *session) restore(ctx context.Context) error {
	if s.driver.owned || !s.guarded {
		return nil
	}
	s.guarded = false
	_, err := s.conn.ExecContext(ctx, unguardSQL)
	return err
}

// end calls Commit or Rollback of the transaction, which know no context, and returns when ctx ends at the latest. On a
// caller's pool the call then goes on by itself, and the connection is closed when it returns.
func (s *session) end(ctx context.Context, call func(*sql.Tx) error) error {
	if s.driver.owned {
		err := s.conn.Raw(func(conn any) error {
			conn.(*ownedConn).ending = ctx
			return nil
		})
		if err != nil {
			return err
		}
		return call(s.tx)
	}
	result := make(chan error, 1)
	go func() { result <- call(s.tx) }()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		s.deserted = true
		go func() {
			<-result
			destroy(s.conn)
			_ = s.conn.Close()
		}()
		return ctx.Err()
	}
}

// destroy closes a connection instead of giving it back to the pool, once it is given back.
func destroy(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}
