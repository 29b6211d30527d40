package mysql

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/kinds"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
)

// Commit implements dialects.Session.
func (s *session) Commit(ctx context.Context, by time.Time, last ...dialects.Query) (err error) {
	defer s.close()
	ctx, done := interrupt.Bound(ctx, by, s.conn.Cut, s.destroy)
	defer done(&err)
	s.endLoan()
	if err := s.savepoints.Err(); err != nil {
		_ = s.rollback(ctx)
		return err
	}
	err = s.commit(ctx, last)
	switch {
	case err == nil:
		return nil
	case server.Number(err) == server.NoSuchSavepoint, server.Aborted(err):
		err = server.Lost(err)
	case server.Number(err) == 0 && errors.Is(err, client.ErrUnsent):
		err = fmt.Errorf("%w: the connection broke before COMMIT, so nothing is committed: %w", dialects.ErrLost, err)
	case (server.Number(err) == 0 || s.driver.unsure(err)) && !errors.Is(err, dialects.ErrLost):
		err = fmt.Errorf("%w: the connection, or the cluster, broke before or during COMMIT, and whether it took "+
			"place is unknown: %w", dialects.ErrLost, err)
	}
	return errors.Join(err, s.rollback(ctx))
}

func (s *session) commit(ctx context.Context, last []dialects.Query) error {
	script := []string{client.Release}
	for _, q := range last {
		further, err := kinds.StatementsOf(q)
		if err != nil {
			return err
		}
		script = append(script, further...)
	}
	if s.conn.Owned != nil {
		return s.end(ctx, append(script, "COMMIT")...)
	}
	return s.end(ctx, append(script, "SET "+commits+s.restoredSQL())...)
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

// close gives the connection back, and ends at the server a session that cannot be ended over it.
func (s *session) close() {
	s.endLoan()
	if s.loan != nil && s.loan.Strays() {
		s.destroy()
	}
	_ = s.conn.Close()
	if s.abandoned {
		s.driver.pool.End(context.Background(), s.thread)
	}
}

func (s *session) endLoan() {
	if s.loan != nil {
		s.loan.End()
	}
}

// rollback ends whatever transaction is open and gives the session its settings back. A connection
// on which that cannot be confirmed is closed. So is one of a server that was read only: it may
// have the run of the server that its tokens were of, and another has taken over since. And so is
// one whose transaction ended in the work: what ends one implicitly may be LOCK TABLES, FLUSH
// TABLES WITH READ LOCK or BACKUP STAGE, whose locks are the session's.
func (s *session) rollback(ctx context.Context) (err error) {
	undo := ""
	if s.loan != nil {
		undo = client.Undo
	}
	switch {
	case s.conn.Owned != nil:
		err = s.end(ctx, undo, "ROLLBACK")
	case !s.work: // and nothing was written
		err = s.end(ctx, "SET "+commits+s.restoredSQL())
	default: // work may have set a savepoint of that name
		err = s.end(ctx, undo, "ROLLBACK", "SET "+s.restoredSQL())
	}
	gone := server.Number(err) == server.NoSuchSavepoint // or COMMIT was refused
	if gone {
		err = s.exec(ctx, "ROLLBACK")
		s.destroy()
	}
	if err != nil || s.readOnly {
		s.destroy()
	}
	s.abandoned = err != nil && server.Number(err) == 0
	return err
}

// end sends what ends the transaction, and gives a connection of the caller's its settings back.
func (s *session) end(ctx context.Context, statements ...string) error {
	if s.conn.Owned == nil && !s.changed {
		return nil
	}
	err := s.exec(ctx, statements...)
	if err == nil {
		s.changed = false
	}
	return err
}
