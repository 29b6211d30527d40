package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/savepoint"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/internal/identifier"
	"github.com/txlock/txlock/internal/label"
	"github.com/txlock/txlock/internal/peer"
)

// session is a pooled connection with its transaction.
type session[Tx any] struct {
	client.Conn[Tx]
	driver     *driver[Tx]
	mark       string // the value that this transaction alone carries; empty: no work runs in it
	savepoints savepoint.Stack
	lease      time.Duration
	held       []dialects.Request // all of it; of a Do, what that began with
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
		// The wait's limit is the server's alone then, which has one for each key.
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

// A session that has locked a row has a transaction number, and VACUUM keeps all rows that were
// deleted since. So a lock that is held for long is renewed: the session ends its transaction and
// locks the same rows in a new one, in one round trip. They are rows of our own: others may lock
// those of a caller's table without us.
//
// Nobody gets in between, by the queue locks, which whoever wants a row passes first. The session
// keeps them apart from any transaction, from before the end of the one until it has the rows in
// the other. Who waits at a row has passed a queue lock, so nobody does, and the rows are locked at
// once.
//
// A renewal waits for nobody. It asks for each queue lock in the form in which the session has it,
// by its transaction or by itself: the server counts that up in the memory of the process, and does
// not come to the table in which locks conflict (LockAcquireExtended). They are tries all the same:
// where one ever had to wait, the renewal would fail at once.

// renewAtLeast is the longest time between two renewals. With a short lease it is two leases.
const renewAtLeast, leasesToRenew = time.Minute, 2

// planRenewal chooses a random time, because all sessions of a Locker have their heartbeats in one
// moment. Those that began together, or were stopped together, are renewed a few at a time.
func (s *session[Tx]) planRenewal() {
	every := min(renewAtLeast, leasesToRenew*s.lease)
	s.renewAt = time.Now().Add(every/2 + mathrand.N(every/2))
}

// renewable tells whether others can be kept out of all that the session holds. That of a leader
// holds two: its seat and its office.
func (s *session[Tx]) renewable() bool {
	return s.mark == "" && !slices.ContainsFunc(s.held, func(r dialects.Request) bool { return !r.Ours })
}

// mustRenew tells whether it is time, and the transaction may have a number: a token takes one.
func (s *session[Tx]) mustRenew() bool {
	if s.renewAt.IsZero() { // it is the first heartbeat
		s.planRenewal()
	}
	return !time.Now().Before(s.renewAt) && s.renewable() && slices.ContainsFunc(s.held,
		func(r dialects.Request) bool { return rowLock(r) != "" || r.Fence != "" })
}

// renew ends one transaction and begins the next in one simple query: a pooler in transaction mode
// sees no end in between, and leaves the server's session to this connection. After an error, as by
// somebody's cancel, the session still has the queue locks, so nobody gets in before the owner
// knows of the loss, when the connection is closed. For that there are the savepoints: without them
// a statement that fails would end the transaction, and with it what the session does not keep for
// itself yet, or no longer.
func (s *session[Tx]) renew(ctx context.Context) error {
	s.renewing = true // unless all goes well, also when the client library panics: see rollback
	const point = "savepoint txlock_renew"
	since := identifier.Qualified("select concat(extract(epoch from now()), ' ', " + nameSQL + ")")
	columns, err := s.Line.Run(ctx, server.Script{{SQL: point, Silent: true, Opens: true}, {SQL: since}})
	if server.State(err) == server.QueryCanceled &&
		s.Line.Exec(ctx, "rollback to "+point+"; release "+point) == nil {
		s.renewing = false // nothing is kept yet: the next heartbeat tries again
		return nil
	}
	if err == nil {
		at, name, _ := strings.Cut(columns[1][0], " ")
		begun, _ := strconv.ParseFloat(at, 64)
		settings := "select " + server.Set("application_name", server.Literal(label.Since(name, begun))) + ", " +
			leaseSQL(server.Literal(milliseconds(s.lease)))
		query := slices.Concat(
			[]string{pingSQL + "\n" + point}, queueLocksSQL(s.held, "pg_try_advisory_lock"),
			[]string{"rollback and chain", settings}, queueLocksSQL(s.held, "pg_try_advisory_xact_lock"),
			relockSQL(s.held),
			[]string{point}, queueLocksSQL(s.held, "pg_advisory_unlock"), []string{"release " + point},
		)
		err = s.Line.Exec(ctx, identifier.Qualified(strings.Join(query, "; ")))
	}
	if err != nil {
		return fmt.Errorf("the renewal of the lock failed: %w", err)
	}
	s.renewing = false // the last statements gave up what the session kept
	s.planRenewal()
	return nil
}

// queueLocksSQL calls function for the queue locks. It fails by a division by zero when one is not
// granted, or was not kept.
func queueLocksSQL(held []dialects.Request, function string) (statements []string) {
	for _, request := range held {
		numbers := server.Literal(server.ArrayOf(queueLocks(request)))
		statements = append(statements, "select 1 / bool_and("+passSQL(request, function, "t")+")::int"+each(numbers))
	}
	return statements
}

// relockSQL locks in a new transaction what was locked in the last. A row that is missing is a
// division by zero. One that somebody has got who passes no queue locks is an error too. Either is
// the end of the session.
func relockSQL(held []dialects.Request) (statements []string) {
	for _, request := range held {
		mode := rowLock(request)
		if mode == "" {
			continue
		}
		t, _ := textsOf(request, own) // it has been locked by the same text
		named, _ := argsOf(request, t)
		where := strings.ReplaceAll(t.where, "$1", server.Literal(named[0].(string)))
		statements = append(statements, "select 1 / (count(*) = "+strconv.Itoa(len(request.Values))+")::int from "+
			"(select from "+t.table+where+" order by "+t.column+mode+" nowait) locked")
	}
	return statements
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

// markSetting holds the mark: a value that lives as long as the transaction, and that no other has.
const markSetting = "txlock.held"

// proof is in front of COMMIT. In any transaction but the one that holds the mark it fails by a
// division by zero, and COMMIT is not reached.
func proof(mark string) server.Statement {
	const same = "pg_catalog.current_setting('" + markSetting + "', true) is not distinct from $1"
	return server.Statement{SQL: "select 1 / (" + same + ")::int", Args: []any{mark}}
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
