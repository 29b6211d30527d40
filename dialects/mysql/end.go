package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/txlock/txlock/dialects"
)

func (s *session) Commit(ctx context.Context) error {
	defer s.close()
	ctx, attend := s.unattended(ctx)
	defer attend()
	err := s.commit(ctx)
	switch {
	case err == nil:
		if err := s.restore(ctx, unguardSQL); err != nil {
			destroy(s.conn) // the work is committed, and the connection's settings die with it
		}
		return nil
	case errors.Is(err, sql.ErrTxDone), number(err) == noSuchSavepoint:
		err = lost(err)
	case number(err) == 0 && !errors.Is(err, dialects.ErrLost):
		err = fmt.Errorf("%w: the connection broke before or during COMMIT, and whether it took place is unknown: %w",
			dialects.ErrLost, err)
	}
	return errors.Join(err, s.rollback(ctx))
}

func (s *session) commit(ctx context.Context) error {
	if s.driver.owned { // ownedTx.Commit does both in one trip
		return s.endOwned(ctx, (*sql.Tx).Commit)
	}
	if err := s.exec(ctx, "RELEASE SAVEPOINT "+savepoint); err != nil {
		if number(err) == 0 {
			err = fmt.Errorf("%w: the connection broke before COMMIT, so nothing is committed: %w", dialects.ErrLost,
				err)
		}
		return err
	}
	return s.exec(ctx, "COMMIT")
}

func (s *session) Rollback(ctx context.Context) error {
	defer s.close()
	ctx, attend := s.unattended(ctx)
	defer attend()
	return lost(s.rollback(ctx))
}

// unattended is a context for statements up to the call of attend. It does not end with ctx: then
// the socket is closed instead, under whoever uses it. go-sql-driver has a goroutine of the
// connection look after each statement whose context can end, and the two wake-ups of it are a
// tenth of what a lock costs.
func (s *session) unattended(ctx context.Context) (statements context.Context, attend func()) {
	if s.socket == nil {
		return ctx, func() {}
	}
	stop := context.AfterFunc(ctx, func() { _ = s.socket.Close() })
	return context.WithoutCancel(ctx), func() {
		if !stop() { // the socket is being closed: the connection must not be another's
			destroy(s.conn)
		}
	}
}

// close gives the connection back.
func (s *session) close() {
	if s.loan != nil {
		s.loan.end()
	}
	_ = s.conn.Close()
}

// rollback ends whatever transaction is open and brings the session's settings back. A connection
// on which that cannot be confirmed is closed.
func (s *session) rollback(ctx context.Context) (err error) {
	switch {
	case s.driver.owned:
		err = sql.ErrTxDone
		if s.tx != nil {
			err = s.endOwned(ctx, (*sql.Tx).Rollback)
		}
		if errors.Is(err, sql.ErrTxDone) { // nobody needed the handle, it was closed by the caller, or a commit failed
			_, err = s.conn.ExecContext(ctx, "ROLLBACK")
		}
	case s.tx == nil:
		err = s.restore(ctx, releaseSQL)
	default:
		if err = s.exec(ctx, "ROLLBACK"); err == nil {
			err = s.restore(ctx, unguardSQL)
		}
	}
	if err != nil {
		destroy(s.conn)
	}
	return err
}

// restore gives a connection of the caller's its settings back.
func (s *session) restore(ctx context.Context, query string) error {
	if s.driver.owned || !s.settled {
		return nil
	}
	s.settled = false
	return s.exec(ctx, query)
}

// endOwned calls Commit or Rollback of the transaction, which know no context, with ctx all the
// same.
func (s *session) endOwned(ctx context.Context, call func(*sql.Tx) error) error {
	if owned := s.owned(); owned != nil {
		owned.ending = ctx
	}
	return call(s.tx)
}

// destroy closes a connection instead of giving it back to the pool, once it is given back.
func destroy(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}
