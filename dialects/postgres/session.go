package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/txlock/txlock/dialects"
)

// session is a pooled pgx connection with its transaction.
type session struct {
	line
	driver     *Driver
	conn       *pgxpool.Conn
	tx         pgx.Tx
	mark       string // the value that this transaction alone carries, once work runs in it
	guarded    bool   // the session's default is read only: work runs, or ran, in it
	savepoints int
}

func newMark() string { return rand.Text() }

func (s *session) Tx() pgx.Tx { return workTx{s.tx} }

// workTx is the transaction as work sees it. Should work commit it, the session stays read only,
// unlike with our own Commit: what work sends then would be committed without the lock.
type workTx struct{ pgx.Tx }

// Commit implements pgx.Tx.
func (t workTx) Commit(ctx context.Context) error {
	tag, err := t.Tx.Exec(ctx, "commit")
	if err != nil {
		return err
	}
	if tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	return errors.Join(err, t.Tx.Rollback(ctx)) // there is nothing to roll back: it closes the handle
}

func (s *session) Socket() net.Conn { return s.conn.Conn().PgConn().Conn() }

func (s *session) Ping(ctx context.Context) error { return ping(ctx, s.conn.Conn()) }

// ping takes an error of the server on an open connection for an answer: somebody's
// pg_cancel_backend ends no session.
func ping(ctx context.Context, conn *pgx.Conn) error {
	err := conn.Ping(ctx)
	if sqlState(err) != "" && !conn.IsClosed() {
		return nil
	}
	return err
}

func (s *session) Join(ctx context.Context, request dialects.Request) (int64, error) {
	if err := s.gone(); err != nil {
		return 0, err
	}
	return s.line.join(ctx, request, s.driver.withLine)
}

func (s *session) Nest(ctx context.Context, work func(tx pgx.Tx) error) error {
	if s.status() == 'E' {
		return errOuterAborted
	}
	s.savepoints++
	name := "txlock_" + strconv.Itoa(s.savepoints)
	begin := "savepoint " + name
	if !s.guarded {
		begin = guardSQL + ", set_config('" + heldSetting + "', '" + s.mark + "', true); " + begin
		s.guarded = true
	}
	clean, cancel := context.WithTimeout(detached(ctx), cleanUpTimeout) // pgx closes the connection when ctx ends
	nested, err := s.conn.Conn().BeginTx(clean, pgx.TxOptions{
		BeginQuery:  begin,
		CommitQuery: "release savepoint " + name,
	})
	cancel()
	if err != nil {
		return lost(err)
	}
	done := false
	defer func() { // also when work panics
		if !done {
			_ = s.undo(ctx, nested, name) // what is wrong with the session shows in its end
		}
	}()
	err = work(nested)
	done = true
	if err == nil {
		switch s.status() {
		case 'T':
			clean, cancel := context.WithTimeout(detached(ctx), cleanUpTimeout)
			defer cancel()
			return lost(ignoreClosed(nested.Commit(clean)))
		case 'E':
			err = errAborted
		}
	}
	if undone := s.undo(ctx, nested, name); undone != nil {
		return lost(undone)
	}
	return err
}

// errAborted is for work that swallowed the error of a failed statement: PostgreSQL cannot commit
// such a transaction.
var errAborted = fmt.Errorf("a statement failed and its error was not returned, so the work is rolled back: %w",
	pgx.ErrTxCommitRollback)

// errOuterAborted is for work that swallowed an error and goes on: the server takes no savepoint in
// its transaction.
var errOuterAborted = errors.New("a statement failed before in the same transaction, and was not rolled back to a " +
	"savepoint")

// undo takes back what was done since the savepoint, and closes the transaction that presented it.
func (s *session) undo(ctx context.Context, nested pgx.Tx, name string) error {
	ctx = detached(ctx)
	if err := s.gone(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cleanUpTimeout)
	defer cancel()
	if _, err := s.conn.Exec(ctx, "rollback to savepoint "+name); err != nil {
		return err
	}
	return ignoreClosed(nested.Commit(ctx))
}

// ignoreClosed lets work end its nested transaction itself.
func ignoreClosed(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) {
		return nil
	}
	return err
}

func detached(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

func (s *session) Commit(ctx context.Context) error {
	defer s.conn.Release()
	if err := s.gone(); err != nil {
		return errors.Join(err, ignoreClosed(s.rollback(ctx)))
	}
	if s.status() == 'E' {
		return errors.Join(errAborted, s.rollback(ctx))
	}
	if s.conn.Conn().PgConn().IsBusy() { // so that COMMIT cannot be sent
		return errors.Join(fmt.Errorf("%w: the work has left rows unread, so nothing is committed", dialects.ErrLost),
			s.rollback(ctx))
	}
	err := s.tx.Commit(ctx)
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case sqlState(err) == divisionByZero:
		return fmt.Errorf("%w: the transaction that took the lock ended before its work did; what came after it is "+
			"not committed", dialects.ErrLost)
	case errors.As(err, &refused) && !s.conn.Conn().IsClosed():
		return errors.Join(err, s.rollback(ctx)) // a deferred constraint, say: nothing is committed
	}
	return fmt.Errorf("%w: the connection broke during COMMIT, and whether it took place is unknown: %w",
		dialects.ErrLost, err)
}

func (s *session) Rollback(ctx context.Context) error {
	defer s.conn.Release()
	if err := s.gone(); err != nil {
		return errors.Join(err, ignoreClosed(s.rollback(ctx)))
	}
	return lost(s.rollback(ctx))
}

// rollback ends whatever transaction is open and brings the session's settings back. A connection
// on which that cannot be confirmed is closed.
func (s *session) rollback(ctx context.Context) error {
	conn := s.conn.Conn()
	if conn.IsClosed() {
		return dialects.ErrLost
	}
	if s.guarded && s.status() == 'I' {
		// The work has ended the transaction. A pooler may since have given the server's session,
		// with what guardSQL has set, to another client, and puts that right if it tracks the
		// setting; what this connection would restore may be another's.
		return conn.Close(ctx)
	}
	err := s.restore(ctx)
	if err == nil && s.status() != 'I' {
		err = s.tx.Rollback(ctx)
	}
	if err == nil && s.status() != 'I' { // the transaction's handle was closed by the caller, the transaction was not
		_, err = conn.Exec(ctx, "rollback")
	}
	if err != nil {
		_ = conn.Close(ctx)
	}
	return err
}

func (s *session) restore(ctx context.Context) error {
	if !s.guarded {
		return nil
	}
	_, err := s.conn.Exec(ctx, restoreSQL)
	return err
}

func (s *session) status() byte { return s.conn.Conn().PgConn().TxStatus() }

// gone is an error when the transaction that took the locks has visibly ended.
func (s *session) gone() error {
	switch {
	case s.conn.Conn().IsClosed():
		return fmt.Errorf("%w: its connection is closed", dialects.ErrLost)
	case s.status() == 'I':
		return fmt.Errorf("%w: its transaction was ended by a COMMIT or ROLLBACK of its work", dialects.ErrLost)
	}
	return nil
}
