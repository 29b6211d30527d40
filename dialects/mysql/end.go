package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
)

// Commit implements dialects.Session.
func (s *session) Commit(ctx context.Context, by time.Time) (err error) {
	defer s.close()
	ctx, stop := interrupt.Bound(ctx, by, s.cut)
	defer func() { err = s.unlessCut(stop(), err) }()
	s.endLoan()
	if err := s.savepoints.Err(); err != nil {
		_ = s.rollback(ctx)
		return err
	}
	err = s.commit(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone), server.Number(err) == server.NoSuchSavepoint, isAborted(err):
		err = lost(err)
	case server.Number(err) == 0 && !errors.Is(err, dialects.ErrLost):
		err = fmt.Errorf("%w: the connection broke before or during COMMIT, and whether it took place is unknown: %w",
			dialects.ErrLost, err)
	}
	return errors.Join(err, s.rollback(ctx))
}

func (s *session) commit(ctx context.Context) error {
	const release = "RELEASE SAVEPOINT " + mark
	switch {
	case s.owned != nil: // ownedTx.Commit does both in one trip
		s.owned.ending.Store(&ctx)
		return s.tx.Commit()
	case s.several: // as well: where the release fails, the server does not run the statement behind it
		return s.restore(ctx, release+"; SET "+commits)
	}
	if err := s.exec(ctx, release); err != nil {
		if server.Number(err) == 0 {
			err = fmt.Errorf("%w: the connection broke before COMMIT, so nothing is committed: %w", dialects.ErrLost,
				err)
		}
		return err
	}
	return s.restore(ctx, "SET "+commits)
}

// Rollback implements dialects.Session.
func (s *session) Rollback(ctx context.Context, by time.Time) (err error) {
	defer s.close()
	ctx, stop := interrupt.Bound(ctx, by, s.cut)
	defer func() { err = s.unlessCut(stop(), err) }()
	s.endLoan()
	return lost(s.rollback(ctx))
}

// unlessCut sees to it that a connection whose socket was closed is not another's.
func (s *session) unlessCut(cut bool, err error) error {
	if !cut {
		return err
	}
	server.Destroy(s.conn)
	return interrupt.Unanswered(err)
}

// close gives the connection back.
func (s *session) close() {
	s.endLoan()
	if s.loan != nil && s.loan.conn.strays {
		server.Destroy(s.conn)
	}
	_ = s.conn.Close()
}

func (s *session) endLoan() {
	if s.loan != nil {
		s.loan.end()
	}
}

// rollback ends whatever transaction is open and gives the session its settings back. A connection
// on which that cannot be confirmed is closed. So is one of a server that was read only: it may
// have the run of the server that its tokens were of, and another has taken over since.
func (s *session) rollback(ctx context.Context) (err error) {
	switch {
	case s.owned != nil:
		err = sql.ErrTxDone
		if s.tx != nil {
			s.owned.ending.Store(&ctx)
			err = s.tx.Rollback()
		}
		if errors.Is(err, sql.ErrTxDone) { // no work ran, the work closed the handle, or a commit failed
			_, err = s.conn.ExecContext(ctx, "ROLLBACK")
		}
	case s.loan == nil: // and nothing was written
		err = s.restore(ctx, "SET "+commits)
	case s.several:
		err = s.restore(ctx, "ROLLBACK; SET ")
	default:
		if err = s.exec(ctx, "ROLLBACK"); err == nil {
			err = s.restore(ctx, "SET ")
		}
	}
	if err != nil || s.readOnly {
		server.Destroy(s.conn)
	}
	return err
}
