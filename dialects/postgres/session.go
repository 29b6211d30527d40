package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/savepoint"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// session is a pooled connection with its transaction.
type session[Tx any] struct {
	querier
	conn       pooledConn[Tx]
	driver     *driver[Tx]
	mark       string // the value that this transaction alone carries; empty: no work runs in it
	settled    bool   // the settings of the connection serve the transaction
	savepoints savepoint.Stack
	nested     string // the savepoint that the last Join has set for the Nest behind it; empty: none
	lease      time.Duration
	renewal    renewal
	spoiled    bool // the connection may have locks that outlive a transaction
}

// begin leaves the connection outside a transaction, or closed, when it fails.
func (s *session[Tx]) begin(ctx context.Context, request dialects.Request) (got dialects.Grant, err error) {
	s.settled = s.conn.lasting().serve(request)
	got, err = s.tryBegin(ctx, request)
	if server.State(err) == server.AbortedBefore && s.conn.status() == idle {
		// pgpool-II went on to believe in a transaction whose COMMIT the server had refused, until
		// the rollback of this one.
		got, err = s.tryBegin(ctx, request)
	}
	for errors.Is(err, errUnsettled) ||
		(errors.Is(err, errUnprepared) || errors.Is(err, errGaveWay)) && !s.spoiled && s.conn.status() != closed {
		s.settled = s.settled && !errors.Is(err, errUnsettled)
		got, err = s.tryBegin(ctx, request)
	}
	if err == nil {
		s.renewal.note(request, got)
	}
	return got, err
}

func (s *session[Tx]) tryBegin(ctx context.Context, request dialects.Request) (got dialects.Grant, err error) {
	on := terms{as: owner, mark: s.mark, settled: s.settled}
	if request.Permit != nil {
		got, err = s.beginPermit(ctx, request, on)
	} else {
		got.Token, err = s.await(ctx, request, on, func(ctx context.Context, lock plan) ([][]string, error) {
			return s.send(ctx, request, lock)
		})
	}
	if err == nil || errors.Is(err, errFound) { // nothing to be explained, and the caller need not wait
		return got, err
	}
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	// An idle connection has begun nothing: BEGIN failed, or something before it.
	if s.conn.status() == idle || s.rollback(clean) == nil {
		err = s.explain(clean, request, err)
	}
	return dialects.Grant{}, err
}

// send begins the transaction and runs lock in it. Settings that outlive a transaction are
// committed in one of their own, ahead of it.
func (s *session[Tx]) send(ctx context.Context, request dialects.Request, lock plan) ([][]string, error) {
	var ahead sqltext.Script
	l := s.conn.lasting()
	due := l.due(request)
	if due {
		l.forget() // they are committed before the wait, which may fail
		ahead = append(ahead, l.set(request))
	}
	if s.mark != "" && !s.settled {
		if pid := s.conn.told(); pid != "" {
			ahead = append(ahead, sqltext.With(guardSQL, pid))
		}
	}
	if ahead != nil {
		ahead = append(ahead, sqltext.Silent(chainSQL))
	}
	columns, err := s.conn.begin(ctx, s.mark, append(ahead, lock.Script...))
	if err != nil {
		return nil, err
	}
	locked := columns[len(ahead):]
	if s.settled {
		err = l.check(locked[lock.settings])
	} else if due {
		l.note(request, columns[0], locked[lock.settings])
	}
	return locked, err
}

// Tx implements dialects.Session.
func (s *session[Tx]) Tx() Tx { return s.conn.tx() }

// Socket implements dialects.Session.
func (s *session[Tx]) Socket() net.Conn { return s.socket }

// Ping implements dialects.Session. An error of the server is an answer too, unless it is that of a
// renewal: the state of the session says whether the transaction goes on.
func (s *session[Tx]) Ping(ctx context.Context, behind int) error {
	if s.renewal.due() {
		_, err := s.renew(ctx, behind)
		return err
	}
	ping := sqltext.Ping + strconv.Itoa(behind)
	if s.conn.shown() == open {
		ping += "\n" + askSQL
	}
	err := s.conn.exec(ctx, ping)
	switch shown, state := s.conn.shown(), server.State(err); {
	case shown == failed, state == server.AbortedBefore:
		return errors.New("its transaction is aborted, which has released the lock")
	case shown == idle, state == server.NoTransaction:
		return errors.New("its transaction has ended, which has released the lock")
	case state != "" && shown != closed && shown != open:
		return nil
	}
	return err
}

// Join implements dialects.Session.
func (s *session[Tx]) Join(ctx context.Context, request dialects.Request) (dialects.Grant, error) {
	if err := s.gone(); err != nil {
		return dialects.Grant{}, err
	}
	got, err := s.joinLock(ctx, request)
	if !errors.Is(err, errNoRun) {
		return got, err
	}
	// The transaction cannot number the run: that must be committed now.
	brief, cancel := context.WithTimeout(ctx, fencing.SecondConn)
	defer cancel()
	err = s.driver.withConn(brief, func(other querier) error { return other.numberRun(brief, request.Fence) })
	if err != nil {
		return got, err
	}
	return s.joinLock(ctx, request)
}

// joinLock also renews what the session holds, when its wait gives way: the transaction as a whole
// may be what somebody waits for, and no heartbeat comes beside a wait.
func (s *session[Tx]) joinLock(ctx context.Context, request dialects.Request) (dialects.Grant, error) {
	request.Lease = s.lease
	on, name := terms{as: guest}, ""
	s.nested = ""
	if request.Work && request.Permit == nil {
		name = s.savepoints.Name()
		on.nest = "savepoint " + name
	}
	for {
		got, err := s.tryGuestLock(ctx, request, on)
		switch {
		case err == nil:
			s.renewal.note(request, got)
			s.nested = name
			return got, nil
		case !errors.Is(err, errGaveWay):
			return got, err
		}
		if err := s.renewSoon(ctx); err != nil {
			return got, lost(err)
		}
	}
}

// Nest implements dialects.Session.
func (s *session[Tx]) Nest(ctx context.Context, work func(tx Tx) error) error {
	if s.mark == "" {
		return errors.New("bug: Nest in a session without Request.Work")
	}
	if s.conn.status() == failed {
		return errOuterAborted
	}
	name, outer := s.nested, waitName
	if s.nested = ""; name == "" {
		name, outer = s.savepoints.Name(), ""
	}
	clean, cancel := interrupt.Detached(ctx) // pgx closes the connection when ctx ends
	nested, release, err := s.conn.savepoint(clean, name, outer)
	cancel()
	if server.State(err) == server.AbortedBefore {
		return errOuterAborted
	}
	if err != nil {
		return lost(err)
	}
	return s.savepoints.Run(func() error {
		err := work(nested)
		if err != nil {
			return err
		}
		clean, cancel := interrupt.Detached(ctx)
		defer cancel()
		if s.conn.ask(clean) == failed {
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
			if err := s.conn.exec(clean, "rollback to savepoint "+name); err != nil {
				return lost(err)
			}
		}
		return lost(release(clean))
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
	switch s.conn.status() {
	case closed:
		return fmt.Errorf("%w: its connection is closed", dialects.ErrLost)
	case idle:
		return fmt.Errorf("%w: its transaction was ended by a COMMIT or ROLLBACK of its work", dialects.ErrLost)
	}
	return nil
}
