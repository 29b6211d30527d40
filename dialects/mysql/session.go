package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/savepoint"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// session is a pooled connection with its transaction.
type session struct {
	driver     *Driver
	conn       client.Conn
	work       bool          // of the caller's runs in the session
	loan       *client.Loan  // its transaction; nil before the lock
	changed    bool          // on a caller's pool: its settings have changed, or may have
	thread     client.Thread // zero: no work runs, or nobody knows
	abandoned  bool          // a statement of it may still run there
	readOnly   bool          // the server was, at a heartbeat
	committed  bool          // by the flight of its statements
	scripted   bool          // the statements of a script have variables of the session: see restoredSQL
	lease      time.Duration
	savepoints savepoint.Stack
	nested     string // the savepoint that the last Join has set for the Nest behind it; empty: none
	beat       string // see provesItself
}

// start is begin. When the client library panics, as an argument of the caller's may have it do,
// the connection is closed, and back in the pool.
func (s *session) start(ctx context.Context, request dialects.Request) (got dialects.Grant, err error) {
	returned := false
	defer func() {
		if !returned {
			s.destroy()
			s.close()
		}
	}()
	got, err = s.begin(ctx, request)
	returned = true
	return got, err
}

// begin may leave a transaction open when it fails.
func (s *session) begin(ctx context.Context, request dialects.Request) (got dialects.Grant, err error) {
	var front []string
	if settings := s.settingsSQL(request); settings != "" {
		front = append(front, settings)
	}
	if request.Work {
		front = append(front, client.Save)
	}
	at := s.place(owner)
	at.beat = &s.beat
	at.flight = s.flightOf(request, "")
	got, err = s.driver.lock(ctx, at, request, front)
	if s.conn.Owned != nil && err == nil {
		s.conn.Owned.Lease = request.Lease
	}
	if err != nil {
		return got, err
	}
	if at.flight != nil {
		if got.Affected, err = at.flight.affected, at.flight.failed; err == nil {
			s.committed, s.changed = true, false
		}
		if ended := request.Exec.Context.Err(); err != nil && ended != nil {
			err = fmt.Errorf("%w (%w)", err, ended)
		}
		return got, err
	}
	if request.Work {
		s.loan, err = s.driver.pool.Lend(s.conn)
	}
	return got, err
}

// place is where the session locks rows.
func (s *session) place(as role) place {
	return place{
		Link: s.conn.Link(), role: as, cut: s.conn.Cut,
	}
}

func (s *session) exec(ctx context.Context, statements ...string) error {
	_, err := s.conn.Link().Run(ctx, statements...)
	return err
}

// Tx implements dialects.Session.
func (s *session) Tx() *sql.Tx { return s.loan.Tx }

// Socket implements dialects.Session.
func (s *session) Socket() net.Conn { return s.conn.Socket }

// Ping implements dialects.Session.
func (s *session) Ping(ctx context.Context) error {
	if err := s.proveInTransaction(ctx); err != nil {
		return err
	}
	return s.provesItself(ctx)
}

// changesTransaction begins a statement that fails with InTransaction in any transaction, whose
// characteristics cannot be changed, and does nothing else there.
const changesTransaction = "SET " + pingMark + "/*!80001 @@transaction_read_only */ /*M! @@tx_read_only */ = "

// inTransactionSQL succeeds outside of a transaction: that of the lock has ended, though the
// connection is as it was. It fails with SeveralRows on a server that has become read only: SET
// GLOBAL read_only ends no session, and while this one goes on, another server may take the writes
// and grant the same lock.
const inTransactionSQL = changesTransaction + "IF(" + sqltext.Writable + ", 0, (SELECT 1 UNION ALL SELECT 2))"

// proveInTransaction is an error unless the session is in a transaction, or a statement was
// interrupted: that is an answer too, for somebody's KILL QUERY ends no session.
func (s *session) proveInTransaction(ctx context.Context) error {
	err := s.exec(ctx, inTransactionSQL)
	switch {
	case err == nil:
		return errors.New("its transaction has ended, which has released the lock")
	case server.Number(err) == server.InTransaction, server.Interrupted(err):
		return nil
	case server.Number(err) == server.SeveralRows:
		s.readOnly = true
		return errors.New("the server is read_only, so another may grant the same lock")
	}
	return err
}

// Join implements dialects.Session. Where no work runs, and so no COMMIT proves anything, the
// transaction is asked for first: the lock would begin another, with which heartbeats are content.
func (s *session) Join(ctx context.Context, request dialects.Request) (got dialects.Grant, err error) {
	request.Work = false
	return s.joinInTx(ctx, request)
}

// Nest implements dialects.Session.
func (s *session) Nest(ctx context.Context, request dialects.Request, work func(tx *sql.Tx) error) (
	got dialects.Grant, err error,
) {
	s.nested = ""
	if len(request.Values) > 0 || request.Exec != nil {
		request.Work = true
		if got, err = s.joinInTx(ctx, request); err != nil || got.Affected != nil {
			return got, err
		}
	}
	return got, s.nest(ctx, work)
}

func (s *session) joinInTx(ctx context.Context, request dialects.Request) (got dialects.Grant, err error) {
	if !s.work {
		// The connection would be closed when ctx ends, and a server that stalls for a moment loses
		// no lock.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), interrupt.GuestPatience)
		err := s.proveInTransaction(clean)
		cancel()
		if err != nil {
			return got, server.Lost(err)
		}
	}
	got, err = s.join(ctx, request)
	if errors.Is(err, dialects.ErrDeadlock) || server.Aborted(err) {
		return got, server.Lost(err)
	}
	return got, err
}

func (s *session) join(ctx context.Context, request dialects.Request) (got dialects.Grant, err error) {
	at := s.place(guest)
	at.patience = patienceOf(s.lease)
	var front []string
	name := ""
	if s.nested = ""; request.Work && s.conn.Several && request.AnyOne == "" && !s.driver.pool.Galera() {
		name = s.savepoints.Name() // which a miss leaves behind, and that does no harm
		front = []string{"SAVEPOINT " + name}
		at.flight = s.flightOf(request, name)
	}
	if len(request.Values) == 0 && at.flight == nil {
		return got, nil
	}
	for numbered := 0; ; {
		got, err = s.driver.guestLock(ctx, at, request, front)
		switch {
		case err == nil && at.flight != nil:
			got.Affected = at.flight.affected
			return got, s.undone(ctx, request.Exec.Context, at.flight.failed, name)
		case err == nil:
			s.nested = name
			return got, nil
		case errors.Is(err, errPatience): // once more
		case errors.Is(err, fencing.ErrNoRun) && numbered < fencing.Tries:
			numbered++
			brief, cancel := context.WithTimeout(ctx, fencing.SecondConn)
			err = s.driver.numberRun(brief, request.Fence)
			if cancel(); err != nil {
				return got, err
			}
		default:
			return got, err
		}
	}
}

func (s *session) nest(ctx context.Context, work func(tx *sql.Tx) error) error {
	if !s.work {
		return errors.New("bug: Nest in a session without Request.Work")
	}
	name := s.nested
	if s.nested = ""; name == "" {
		name = s.savepoints.Name()
		clean, cancel := interrupt.Detached(ctx) // the connection is closed when ctx ends
		err := s.exec(clean, "SAVEPOINT "+name)
		cancel()
		if err != nil {
			return server.Lost(err)
		}
	}
	return s.savepoints.Run(func() error { return work(s.loan.Tx) }, func(undo bool) error {
		s.nested = "" // of a Join in the work, whose Nest has not come
		clean, cancel := interrupt.Detached(ctx)
		defer cancel()
		verb := "RELEASE"
		if undo {
			verb = "ROLLBACK TO"
		}
		return server.Lost(s.exec(clean, verb+" SAVEPOINT "+name))
	})
}
