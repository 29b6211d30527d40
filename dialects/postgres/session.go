package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/savepoint"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// session is a pooled connection with its transaction.
type session[Tx any] struct {
	querier
	conn       client.Conn[Tx]
	driver     *driver[Tx]
	mark       string // the value that this transaction alone carries; empty: no work runs in it
	savepoints savepoint.Stack
	nested     string // the savepoint that the last Join has set for the Nest behind it; empty: none
	lease      time.Duration
	renewal    renewal
	spoiled    bool // the connection may have what a renewal keeps beside the transaction
	committed  bool // by the flight of its statements
}

// start is begin. When the client library panics, as an argument of the caller's may have it do,
// the connection is closed, and back in the pool.
func (s *session[Tx]) start(ctx context.Context, request dialects.Request) (got dialects.Grant, err error) {
	returned := false
	defer func() {
		if !returned {
			s.conn.Destroy()
			s.conn.GiveBack()
		}
	}()
	got, err = s.begin(ctx, request)
	returned = true
	return got, err
}

// begin leaves the connection outside a transaction, or closed, when it fails.
func (s *session[Tx]) begin(ctx context.Context, request dialects.Request) (got dialects.Grant, err error) {
	err = errNoFlight
	if request.Exec != nil && request.AnyOne == "" {
		got, err = s.beginExec(ctx, request)
	}
	if errors.Is(err, errNoFlight) {
		got, err = s.beginLock(ctx, request)
	}
	var work *dialects.StatementError
	switch {
	case s.committed:
		return got, nil
	case err == nil:
		s.renewal.note(request, got)
		return got, nil
	}
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	// An idle connection has begun nothing: BEGIN failed, or something before it.
	if (s.conn.Status() == client.Idle || s.rollback(clean) == nil) && !errors.As(err, &work) {
		err = s.explain(clean, request, err)
	}
	return dialects.Grant{}, err
}

func (s *session[Tx]) beginLock(ctx context.Context, request dialects.Request) (dialects.Grant, error) {
	on := terms{as: owner, mark: s.mark}
	send := func(ctx context.Context, lock plan) ([][]string, error) {
		return s.conn.Begin(ctx, s.mark, lock.Script)
	}
	return s.await(ctx, request, on, send)
}

// Tx implements dialects.Session.
func (s *session[Tx]) Tx() Tx { return s.conn.Tx() }

// Socket implements dialects.Session.
func (s *session[Tx]) Socket() net.Conn { return s.Line.Socket }

// Ping implements dialects.Session. An error of the server is an answer too, unless it is that of a
// renewal: the state of the session says whether the transaction goes on.
func (s *session[Tx]) Ping(ctx context.Context) error {
	if s.renewal.due() {
		return s.renew(ctx)
	}
	ping := sqltext.Ping
	if s.conn.Status() == client.Open {
		ping += "\n" + client.AskSQL
	}
	err := s.conn.Exec(ctx, ping)
	switch shown, state := s.conn.Status(), server.State(err); {
	case shown == client.Failed, state == server.AbortedBefore:
		return errors.New("its transaction is aborted, which has released the lock")
	case shown == client.Idle, state == server.NoTransaction:
		return errors.New("its transaction has ended, which has released the lock")
	case state != "" && shown != client.Closed && shown != client.Open:
		return nil
	}
	return err
}

// Join implements dialects.Session.
func (s *session[Tx]) Join(ctx context.Context, request dialects.Request) (dialects.Grant, error) {
	if err := s.gone(); err != nil {
		return dialects.Grant{}, err
	}
	request.Lease = s.lease
	on, name := terms{as: guest}, ""
	s.nested = ""
	if request.Work && request.AnyOne == "" { // else what comes behind depends on the answer
		name = s.savepoints.Name()
		on.nest = "savepoint " + name
		on.flight = s.flightInside(request)
	}
	for numbered := 0; ; {
		if on.flight == nil && len(request.Values) == 0 { // only statements are left
			return dialects.Grant{}, nil
		}
		got, err := s.tryGuestLock(ctx, request, on)
		switch {
		case errors.Is(err, fencing.ErrNoRun) && numbered < fencing.Tries:
			numbered++
			brief, cancel := context.WithTimeout(ctx, fencing.SecondConn)
			err = s.driver.numberRun(brief, request.Fence)
			if cancel(); err != nil {
				return got, err
			}
			continue
		case err == nil:
			s.renewal.note(request, got)
			if got.Affected == nil {
				s.nested = name
			}
			return got, nil
		case errors.Is(err, errNoFlight):
			on.flight = nil
			continue
		case !errors.Is(err, errAgain):
			return got, err
		}
		// The transaction as a whole may be what somebody waits for, and no heartbeat comes beside
		// a wait.
		if err := s.renewSoon(ctx); err != nil {
			return got, dialects.Lost(err)
		}
	}
}

// Nest implements dialects.Session.
func (s *session[Tx]) Nest(ctx context.Context, work func(tx Tx) error) error {
	if s.mark == "" {
		return errors.New("bug: Nest in a session without Request.Work")
	}
	if s.conn.Status() == client.Failed {
		return errOuterAborted
	}
	name, outer := s.nested, client.WaitName
	if s.nested = ""; name == "" {
		name = s.savepoints.Name()
		outer = name
	}
	if outer == name {
		clean, cancel := interrupt.Detached(ctx) // pgx closes the connection when ctx ends
		err := s.conn.Exec(clean, "savepoint "+name)
		cancel()
		if server.State(err) == server.AbortedBefore {
			return errOuterAborted
		}
		if err != nil {
			return dialects.Lost(err)
		}
	}
	nested, release := s.conn.Nested("release savepoint " + outer)
	return s.savepoints.Run(func() error {
		err := work(nested)
		if err != nil {
			return err
		}
		clean, cancel := interrupt.Detached(ctx)
		defer cancel()
		if s.conn.Ask(clean) == client.Failed {
			return errAborted
		}
		return nil
	}, func(undo bool) error {
		s.nested = "" // of a Join in the work, whose Nest has not come
		clean, cancel := interrupt.Detached(ctx)
		defer cancel()
		if err := s.gone(); err != nil {
			return err
		}
		if undo {
			if err := s.conn.Exec(clean, "rollback to savepoint "+name); err != nil {
				return dialects.Lost(err)
			}
		}
		return dialects.Lost(release(clean))
	})
}

var (
	// errAborted is for work that swallowed the error of a failed statement: PostgreSQL cannot
	// commit such a transaction.
	errAborted = fmt.Errorf("a statement failed and its error was not returned, so the work is rolled back: %w",
		pgx.ErrTxCommitRollback)

	// errOuterAborted is for work that swallowed an error and goes on: the server takes no
	// savepoint in its transaction.
	errOuterAborted = errors.New("a statement failed before in the same transaction, and was not rolled back to a " +
		"savepoint")
)

// gone is an error when the transaction that took the locks has visibly ended.
func (s *session[Tx]) gone() error {
	switch s.conn.Status() {
	case client.Closed:
		return fmt.Errorf("%w: its connection is closed", dialects.ErrLost)
	case client.Idle:
		return fmt.Errorf("%w: its transaction was ended by a COMMIT or ROLLBACK of its work", dialects.ErrLost)
	}
	return nil
}
