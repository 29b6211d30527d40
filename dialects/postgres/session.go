package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/savepoint"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/internal/peer"
)

// session is a pooled connection with its transaction.
type session[Tx any] struct {
	client.Conn[Tx]
	driver     *driver[Tx]
	mark       string // the value that this transaction alone carries; empty: no work runs in it
	savepoints savepoint.Stack
	lease      time.Duration
	held       []dialects.Request // where no work runs
	renewAt    time.Time
	renewing   bool // the connection may have what a renewal keeps beside the transaction
	committed  bool // with the statements that came with the lock
}

// begin leaves the connection outside a transaction, or closed, when it fails.
func (s *session[Tx]) begin(ctx context.Context, request dialects.Request) (got dialects.Grant, err error) {
	way, last := own, dropSnapshot
	running, told := ctx, !request.Try
	var exec behind
	if request.Work != nil {
		s.mark, last = rand.Text(), server.Statement{}
	}
	if request.Work.IsExec() && s.Carries {
		// The server bounds the wait for each key by itself, and nobody interrupts the statements.
		limit, _ := ctx.Deadline()
		if whole, _ := request.Work.Context.Deadline(); limit.Equal(whole) || request.Try || len(request.Values) == 1 {
			exec = behindOf(request.Work.Statements)
		}
	}
	if len(exec.list) > 0 { // the server keeps the limit of the wait, not that of the statements
		way, running, told = carrying, request.Work.Context, false
	}
	a, err := attemptOf(ctx, request, way, s.mark, client.Begin, last)
	if err != nil {
		return got, err
	}
	var columns [][]string
	err = interrupt.Await(running, told, interrupt.Patience, s.Interrupt, s.Cut, func(ctx context.Context) (err error) {
		columns, err = s.Begin(ctx, append(a.script, exec.Script...))
		return err
	})
	var failed error
	if way == carrying {
		got.Affected, failed = exec.read(columns, len(a.script), s.Status(), err)
	}
	switch {
	case failed != nil && running.Err() != nil: // which may have ended the statements
		err = fmt.Errorf("%w (%w)", failed, running.Err())
	case failed != nil:
		err = failed
	case err != nil:
		err = a.judge(err)
	case way == own:
		got, err = a.read(columns)
	}
	if err == nil {
		s.committed = exec.commits
		if got.Row != "" {
			request.Values = []dialects.Value{{Text: got.Row}}
		}
		s.held = append(s.held, request)
		return got, nil
	}
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	// An idle connection has begun nothing: BEGIN failed, or something before it.
	if (s.Status() == client.Idle || s.rollback(clean) == nil) && !errors.As(err, new(*dialects.StatementError)) {
		err = explain(clean, s.Line, request, err)
	}
	return dialects.Grant{}, err
}

func (s *session[Tx]) Socket() net.Conn { return s.Line.Socket }

// pingSQL is an empty query, that is no statement: somebody's pg_cancel_backend would abort the
// transaction with a statement, and release the lock. Only where the client library does not say in
// which state the answer leaves the session, a statement follows that asks for it. The server shows
// the text to who may see the session.
const pingSQL = "-- txlock ping"

// Ping implements dialects.Session. An error of the server is an answer too, unless it is that of a
// renewal: the state of the session says whether the transaction goes on.
func (s *session[Tx]) Ping(ctx context.Context) error {
	if s.mustRenew() {
		return s.renew(ctx)
	}
	ping := pingSQL
	if s.Status() == client.Open { // this fails outside a transaction, and in an aborted one; it has no snapshot
		ping += "\nsavepoint txlock_ask; release savepoint txlock_ask"
	}
	err := s.Line.Exec(ctx, ping)
	switch shown, state := s.Status(), server.State(err); {
	case shown == client.Failed, state == server.AbortedBefore:
		return errors.New("its transaction is aborted, which has released the lock")
	case shown == client.Idle, state == server.NoTransaction:
		return errors.New("its transaction has ended, which has released the lock")
	case state != "" && shown != client.Closed && shown != client.Open:
		return nil
	}
	return err
}

// Join implements dialects.Session. Work runs in the savepoint of its lock.
func (s *session[Tx]) Join(ctx context.Context, request dialects.Request, work func(Tx) error) (
	got dialects.Grant, err error,
) {
	if err = s.usable(); err != nil {
		return got, err
	}
	at := s.savepoints.Name()
	switch {
	case request.Work == nil:
		return s.lockMore(ctx, request, joined, at)
	case len(request.Values) > 0:
		got, err = s.lockMore(ctx, request, nested, at)
	default:
		err = s.send(ctx, "savepoint "+at)
	}
	if err != nil {
		return got, err
	}
	if request.Work.IsExec() {
		work = func(Tx) (err error) {
			got.Affected, err = s.runAll(request.Work.Context, request.Work.Statements)
			return err
		}
	}
	err = s.savepoints.Run(func() error {
		if err := work(s.Tx()); err != nil {
			return err
		}
		return s.send(ctx, "release "+at)
	}, func(failed bool) error {
		if !failed {
			return nil
		}
		return s.send(ctx, "rollback to "+at+"; release "+at)
	})
	return got, err
}

// lockMore locks in a savepoint.
func (s *session[Tx]) lockMore(ctx context.Context, request dialects.Request, w how, at string) (
	got dialects.Grant, err error,
) {
	request.Lease = s.lease
	err = s.driver.repeat(ctx, fencing.SecondConn, request, func() error {
		got, err = join(ctx, s.Line, request, w, at)
		if errors.Is(err, errAgain) && s.renewable() {
			// A new snapshot is as old as the transaction, and no heartbeat comes beside a wait.
			clean, cancel := interrupt.Detached(ctx)
			defer cancel()
			if failed := s.renew(clean); failed != nil {
				return dialects.Lost(failed)
			}
		}
		return err
	})
	if err == nil && s.mark == "" {
		s.held = append(s.held, request)
	}
	return got, err
}

// send sends what must be sent also when ctx has ended. Pgx would close the connection.
func (s *session[Tx]) send(ctx context.Context, text string) error {
	if err := s.gone(); err != nil {
		return err
	}
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	err := s.Line.Exec(clean, text)
	if err != nil && server.State(err) == server.AbortedBefore {
		return server.ErrAborted
	}
	return dialects.Lost(err)
}

// Run implements dialects.Session. Behind the end of the transaction it would be committed by
// itself, so the proof is in front.
func (s *session[Tx]) Run(ctx context.Context, q dialects.Query) ([]string, error) {
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	columns, err := s.Line.Run(clean, append(server.Script{proof(s.mark)}, scriptOf(q)...))
	switch {
	case err == nil:
		return columns[len(columns)-1], nil
	case server.Broken(err), server.State(err) == server.DivisionByZero: // of the proof
		return nil, dialects.Lost(err)
	}
	return nil, server.Ours(err, q.Table)
}

// gone is an error when the transaction that took the locks has visibly ended.
func (s *session[Tx]) gone() error {
	switch s.Status() {
	case client.Closed:
		return fmt.Errorf("%w: its connection is closed", dialects.ErrLost)
	case client.Idle:
		return fmt.Errorf("%w: its transaction was ended by a COMMIT or ROLLBACK of its work", dialects.ErrLost)
	}
	return nil
}

// usable is an error when nothing can be sent in the transaction now.
func (s *session[Tx]) usable() error {
	if s.Status() == client.Busy {
		return client.ErrRowsOpen
	}
	return s.gone()
}

func (s *session[Tx]) End(ctx context.Context, by time.Time, commit bool, last ...dialects.Query) (err error) {
	defer s.GiveBack()
	ctx, done := interrupt.Bound(ctx, by, s.Cut, s.Destroy)
	defer done(&err)
	if !commit {
		return cmp.Or(s.gone(), dialects.Lost(s.rollback(ctx)))
	}
	if s.Status() == client.Failed {
		return errors.Join(server.ErrAborted, s.rollback(ctx))
	}
	bad := cmp.Or(s.savepoints.Stuck, s.usable())
	if gone, _ := (peer.Conn{Conn: s.Line.Socket}).Look(); bad == nil && gone { // nothing is committed: no doubt
		bad = errors.New("the server has ended the session before the COMMIT")
	}
	if bad != nil {
		_ = s.rollback(ctx)
		return dialects.Lost(bad)
	}
	script := server.Script{proof(s.mark)}
	for _, q := range last {
		script = append(script, scriptOf(q)...)
	}
	if err = s.Commit(ctx, script); err == nil {
		return nil
	}
	switch state := server.State(err); {
	case state == server.AbortedBefore: // a connection that does not know its state comes so far
		return errors.Join(server.ErrAborted, s.rollback(ctx))
	case state == server.DivisionByZero && s.Status() != client.Idle: // of the proof, else of the COMMIT
		_ = s.rollback(ctx)
		s.Destroy() // for what the work has left behind
		return fmt.Errorf("%w: the transaction that took the lock ended before its work did; what came after it is "+
			"not committed", dialects.ErrLost)
	case state != "" && s.Status() == client.Idle: // a deferred constraint, say: nothing is committed
		return err
	case errors.Is(err, dialects.ErrLost), state != "" && s.Status() != client.Closed:
		return errors.Join(err, s.rollback(ctx))
	}
	return fmt.Errorf("%w: the connection broke during it: %w", dialects.ErrUnknown, err)
}

// rollback ends whatever transaction is open. A connection on which that is not confirmed is
// closed, and so is one whose work has ended the transaction, with what that has left behind.
func (s *session[Tx]) rollback(ctx context.Context) (err error) {
	switch idle := s.Status() == client.Idle; {
	case s.renewing:
		// The answer tells whether the locks were held until now. The transaction stays open:
		// behind its end, a pooler would give the session to another client, with all that it kept.
		if !idle {
			err = s.Line.Exec(ctx, "select 1")
		}
		s.Destroy()
		if server.State(err) == server.AbortedBefore {
			return nil
		}
	case s.mark != "" && idle:
		s.Destroy()
	default:
		if err = s.Rollback(ctx); err != nil {
			s.Destroy()
		}
	}
	return err
}
