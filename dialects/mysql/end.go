package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
)

// Commit implements dialects.Session.
func (s *session) Commit(ctx context.Context, by time.Time) (err error) {
	defer s.close()
	ctx, done := interrupt.Bound(ctx, by, s.conn.Cut, s.destroy)
	defer done(&err)
	s.endLoan()
	if err := s.savepoints.Err(); err != nil {
		_ = s.rollback(ctx)
		return err
	}
	err = s.commit(ctx)
	switch {
	case err == nil:
		if s.giveNamesBack(ctx) != nil {
			s.destroy()
		}
		return nil
	case len(s.names) > 0 && s.conn.Several && server.Interrupted(err):
		err = fmt.Errorf("%w: a KILL QUERY has hit COMMIT, or the release of a lock beside it, and whether COMMIT "+
			"took place is unknown: %w", dialects.ErrLost, err)
	case errors.Is(err, sql.ErrTxDone), server.Number(err) == server.NoSuchSavepoint, server.Aborted(err):
		err = server.Lost(err)
	case (server.Number(err) == 0 || s.driver.unsure(err)) && !errors.Is(err, dialects.ErrLost):
		err = fmt.Errorf("%w: the connection, or the cluster, broke before or during COMMIT, and whether it took "+
			"place is unknown: %w", dialects.ErrLost, err)
	}
	return errors.Join(err, s.rollback(ctx))
}

func (s *session) commit(ctx context.Context) error {
	switch {
	case s.conn.Owned != nil: // ownedTx.Commit does both in one trip
		return s.endTx(ctx, s.tx.Commit)
	case s.conn.Several: // as well: where the release fails, the server does not run the statement behind it
		return s.restore(ctx, client.Release+"; SET "+commits)
	}
	if err := s.exec(ctx, client.Release); err != nil {
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
	ctx, done := interrupt.Bound(ctx, by, s.conn.Cut, s.destroy)
	defer done(&err)
	s.endLoan()
	return server.Lost(s.rollback(ctx))
}

// destroy has the connection closed when it is given back.
func (s *session) destroy() { server.Destroy(s.conn.Conn) }

// close gives the connection back.
func (s *session) close() {
	s.endLoan()
	if s.loan != nil && s.loan.Strays() {
		s.destroy()
	}
	_ = s.conn.Close()
}

func (s *session) endLoan() {
	if s.loan != nil {
		s.loan.End()
	}
}

// rollback ends whatever transaction is open and gives the session its settings back. A connection
// on which that cannot be confirmed is closed. So is one of a server that was read only: it may
// have the run of the server that its tokens were of, and another has taken over since.
func (s *session) rollback(ctx context.Context) (err error) {
	switch {
	case s.conn.Owned != nil:
		err = sql.ErrTxDone
		if s.tx != nil {
			err = s.endTx(ctx, s.tx.Rollback)
		}
		if errors.Is(err, sql.ErrTxDone) { // no work ran, the work closed the handle, or a commit failed
			_, err = s.conn.ExecContext(ctx, s.withRelease("ROLLBACK"))
		}
		if err == nil {
			s.released()
		}
	case s.loan == nil: // and nothing was written
		err = s.restore(ctx, "SET "+commits)
	case s.conn.Several:
		err = s.restore(ctx, "ROLLBACK; SET ")
	default:
		if err = s.exec(ctx, "ROLLBACK"); err == nil {
			err = s.restore(ctx, "SET ")
		}
	}
	if err == nil {
		err = s.giveNamesBack(ctx)
	}
	if err != nil || s.readOnly {
		s.destroy()
	}
	return err
}

// endTx ends the transaction of a connection of Open, and gives the session's names back behind it.
func (s *session) endTx(ctx context.Context, end func() error) error {
	s.conn.Owned.EndIn(ctx, s.withRelease(""))
	err := end()
	if err == nil {
		s.released()
	}
	return err
}
