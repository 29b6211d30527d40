package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// End implements dialects.Session.
func (s *session[Tx]) End(ctx context.Context, by time.Time, commit bool, last ...dialects.Query) (err error) {
	defer s.conn.GiveBack()
	ctx, done := interrupt.Bound(ctx, by, s.Cut, s.conn.Destroy)
	defer done(&err)
	if err := s.gone(); err != nil {
		_ = s.rollback(ctx)
		return err
	}
	if !commit {
		return dialects.Lost(s.rollback(ctx))
	}
	if err := s.savepoints.Err(); err != nil {
		_ = s.rollback(ctx)
		return err
	}
	if s.conn.Status() == client.Failed {
		return errors.Join(errAborted, s.rollback(ctx))
	}
	if s.conn.Busy() { // so that COMMIT cannot be sent
		return errors.Join(fmt.Errorf("%w: the work has left rows unread, so nothing is committed", dialects.ErrLost),
			s.rollback(ctx))
	}
	var behind sqltext.Script
	for _, q := range last {
		behind = append(behind, scriptOf(q)...)
	}
	err = s.conn.Commit(ctx, s.mark, behind...)
	switch {
	case err == nil:
		return nil
	case server.State(err) == server.AbortedBefore: // a connection that does not know its state comes so far
		return errors.Join(errAborted, s.rollback(ctx))
	case server.State(err) == server.DivisionByZero && s.conn.Status() != client.Idle:
		// of the proof: a COMMIT that failed is over
		_ = s.rollback(ctx)
		s.conn.Destroy() // for what the work has left behind
		return errEnded
	case server.State(err) != "" && s.conn.Status() == client.Idle: // a deferred constraint, say: nothing is committed
		return err
	case errors.Is(err, dialects.ErrLost), server.State(err) != "" && s.conn.Status() != client.Closed:
		return errors.Join(err, s.rollback(ctx))
	}
	return fmt.Errorf("%w: the connection broke during it: %w", dialects.ErrUnknown, err)
}

var errEnded = fmt.Errorf("%w: the transaction that took the lock ended before its work did; what came after it is "+
	"not committed", dialects.ErrLost)

// rollback ends whatever transaction is open. A connection on which that cannot be confirmed is
// closed.
func (s *session[Tx]) rollback(ctx context.Context) (err error) {
	if s.spoiled {
		// The answer tells whether the locks were held until now. The transaction stays open:
		// behind its end, a pooler would give the session to another client, with all that it kept.
		if s.conn.Status() != client.Idle {
			err = s.conn.Exec(ctx, "select 1")
		}
		s.conn.Destroy()
		if server.State(err) == server.AbortedBefore {
			return nil
		}
		return err
	}
	if s.mark != "" && s.conn.Status() == client.Idle {
		// The work has ended the transaction. What it has left behind goes with the session.
		s.conn.Destroy()
		return nil
	}
	if err = s.conn.Rollback(ctx); err != nil {
		s.conn.Destroy()
	}
	return err
}
