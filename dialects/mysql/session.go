package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/savepoint"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/installation"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/internal/peer"
)

// session is a transaction in which rows are locked, on a pooled connection, or the caller's.
type session struct {
	client.Conn
	driver     *Driver
	cut        func()           // closes the connection under a statement; nil: the end of its context does
	request    dialects.Request // that began it
	label      string           // of what it locks, for heartbeats
	thread     client.Thread    // zero: no work runs, or nobody knows
	savepoints savepoint.Stack

	// joined says that the transaction began before the lock, and has more to lose. There the lock
	// is the last statement of its query: a KILL QUERY that falls between two gets no answer.
	joined   bool
	patience time.Duration // how long a statement may ignore interrupts before the connection is closed
	// limit is how long the server lets a wait last; 0: as long as its settings do. Then that asks
	// again, at the end of the queue, or its client is gone.
	limit time.Duration
}

// proof sets a savepoint in the transaction that took the lock, before work runs in it. It can be
// released as long as that transaction lives: a deadlock rolls all of it back, COMMIT and DDL end
// it, and no later one has the savepoint. Where that fails in front of a COMMIT, that is not run.
const proof = "SAVEPOINT txlock"

func (s *session) acquire(ctx context.Context) (err error) {
	if s.Conn, err = s.driver.Pool.Acquire(ctx); err == nil {
		s.cut, s.patience = s.Cut(), interrupt.Patience
	}
	return err
}

// begin takes a connection, and locks in a new transaction. Where a limit of the session has ended
// the wait, it waits on in another: with innodb_rollback_on_timeout the first one is gone. After an
// error, and behind the COMMIT of an Exec, the connection is given back.
func (s *session) begin(ctx context.Context) (got dialects.Grant, err error) {
	if err = s.acquire(ctx); err != nil {
		return got, err
	}
	returned := false
	defer func() {
		if !returned { // the client library has panicked
			s.Destroy()
		}
		if !returned || err != nil || got.Affected != nil {
			s.close()
		}
	}()
	if s.request.Work != nil {
		s.thread = s.Thread(ctx)
	}
	for overtaken := 0; ; overtaken++ {
		if got, err = s.lockFirst(ctx); err == nil {
			s.joined, s.patience, s.limit = true, interrupt.GuestPatience, min(5*s.request.Lease, 150*time.Second)
			break
		}
		clean, cancel := interrupt.Detached(ctx)
		broken := s.rollback(clean, "")
		cancel()
		if s.driver.Pool.Galera.Load() {
			err = overtakenBy(err, s.request, overtaken)
		}
		switch number := server.Number(err); {
		case number == server.OnlyReads, number == server.ReadOnlyMode, number == server.NodeNotReady,
			errors.Is(err, dialects.ErrUnsafeEngine): // the next call looks for the primary again
			s.Destroy()
		}
		if broken != nil || !errors.Is(err, errWaitOn) || ended(ctx) {
			break
		}
		s.limit = interrupt.Longest // overrules the session's, but for innodb_lock_wait_timeout
	}
	returned = true
	return got, err
}

func (s *session) lockFirst(ctx context.Context) (got dialects.Grant, err error) {
	owned, lease, work, settings, save := s.Owned, s.request.Lease, s.request.Work != nil, "", ""
	switch {
	case owned == nil: // the settings come before the BEGIN of the client library
		if err = s.exec(ctx, guardSQL+leaseSQL(lease)); err == nil && work {
			err = s.Begin(ctx)
		}
		if err != nil {
			return got, server.Classify(err, s.request)
		}
	case owned.Lease != lease: // they stay, so most locks need none
		settings = client.Settings + leaseSQL(lease)
		s.driver.Pool.DB.SetConnMaxIdleTime(lease / 2) // the pool lets them go before the server does
		owned.Lease = 0                                // until it is known what the session has
	}
	if work {
		save = proof
	}
	if texts := s.travelling(); texts != nil {
		got.Affected, err = s.fly(ctx, settings, texts)
	} else {
		got, err = s.lock(ctx, s.request, settings, save)
	}
	if err == nil && owned != nil {
		owned.Lease = lease
		if work && got.Affected == nil { // last: database/sql has a goroutine for each query in a transaction
			err = s.Begin(context.WithoutCancel(ctx)) // which sends nothing
		}
	}
	return got, err
}

func (s *session) exec(ctx context.Context, statements ...string) error {
	_, err := s.Conn.Run(ctx, statements...)
	return err
}

func (s *session) Socket() net.Conn { return s.Conn.Socket }

// Ping implements dialects.Session. A node of Galera that is cut off cannot change one of the rows.
func (s *session) Ping(ctx context.Context) error {
	err := s.prove(ctx)
	if err == nil && s.driver.Pool.Galera.Load() {
		err = s.exec(ctx, certifySQL(s.request, server.Comment(s.label, ""), s.request.Values[:1]))
	}
	return err
}

// prove is an error unless the transaction of the session goes on, and on a server that has become
// read only: that ends no session, and another server may take the writes, and grant the lock.
func (s *session) prove(ctx context.Context) error {
	err := s.inTransaction(ctx, "IF("+server.Writable+", 0, (SELECT 1 UNION ALL SELECT 2))")
	if server.Number(err) == server.SeveralRows {
		// Its tokens may be of the run of a server that another has taken over from.
		s.Destroy()
		return errors.New("the server is read_only, so another may grant the same lock")
	}
	return err
}

// Join implements dialects.Session. A miss leaves the savepoint behind, which does no harm.
func (s *session) Join(ctx context.Context, request dialects.Request, work func(tx *sql.Tx) error) (
	got dialects.Grant, err error,
) {
	name := ""
	if request.Work != nil {
		name = "SAVEPOINT " + s.savepoints.Name()
	}
	if got, err = s.join(ctx, request, name); err != nil || name == "" {
		return got, err
	}
	if request.Work.IsExec() {
		work = func(*sql.Tx) (err error) {
			got.Affected, err = s.runAll(request.Work.Context, request.Work.Statements)
			return err
		}
	}
	err = s.savepoints.Run(func() error { return work(s.Tx()) }, func(undo bool) error {
		clean, cancel := interrupt.Detached(ctx) // the connection is closed when ctx ends
		defer cancel()
		if undo {
			return server.Lost(s.exec(clean, "ROLLBACK TO "+name))
		}
		return server.Lost(s.exec(clean, "RELEASE "+name))
	})
	return got, err
}

// join locks in the transaction of the session, behind what goes in front. Where no work runs, no
// COMMIT proves anything: so the transaction is asked for first. The lock would begin another.
func (s *session) join(ctx context.Context, request dialects.Request, front string) (got dialects.Grant, err error) {
	empty := len(request.Values) == 0 && !request.Work.TakesFree()
	// When ctx ends, no connection is closed. A server that stalls for a moment loses no lock.
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), interrupt.GuestPatience)
	defer cancel()
	if err = s.Busy(); err != nil {
		return got, err
	}
	if s.request.Work == nil {
		err = s.prove(clean)
	} else if empty {
		err = s.exec(clean, front)
	}
	if err != nil || empty {
		return got, server.Lost(err)
	}
	got, err = s.joinRows(ctx, request, front)
	const longest = 1000 // about what performance_schema keeps of a statement
	if err == nil && len(s.label) < longest {
		s.label += " " + request.Label
	}
	if errors.Is(err, dialects.ErrDeadlock) {
		err = server.Lost(err)
	}
	return got, err
}

// End implements dialects.Session.
func (s *session) End(ctx context.Context, by time.Time, commit bool, last ...dialects.Query) (err error) {
	defer s.close()
	ctx, done := interrupt.Bound(ctx, by, s.cut, s.Destroy)
	defer done(&err)
	undo := ""
	if s.request.Work != nil {
		undo = "ROLLBACK TO " + proof
	}
	if !commit {
		return server.Lost(s.rollback(ctx, undo))
	}
	if s.Owned != nil { // closes the handle, with the rows of the work, and sends nothing
		err = server.Lost(s.Finish(ctx, (*sql.Tx).Rollback))
	}
	if err = cmp.Or(s.savepoints.Stuck, err); err == nil {
		err = s.commit(ctx, last)
	}
	if err != nil {
		err = errors.Join(err, s.rollback(ctx, undo))
	}
	return err
}

func (s *session) commit(ctx context.Context, last []dialects.Query) error {
	script := []string{"RELEASE " + proof}
	for _, q := range last {
		script = append(script, installation.StatementsOf(q)...)
	}
	sent, err := false, driver.ErrBadConn
	switch socket := (peer.Conn{Conn: s.Conn.Socket}); {
	case socket.Gone(), socket.Unread(): // nobody would read it
	case s.Owned != nil:
		sent, err = true, s.exec(ctx, append(script, "COMMIT")...)
	default:
		if err = s.exec(ctx, script...); err == nil { // and no COMMIT of the client library, which no context would end
			sent, err = true, s.exec(ctx, commitAndRestore)
		}
	}
	if err != nil {
		return s.uncommitted(err, sent)
	}
	if s.Finish(ctx, (*sql.Tx).Rollback) != nil { // there is nothing to roll back
		s.Destroy()
	}
	return nil
}

// uncommitted says whether the work may be committed, behind an error of what ends with COMMIT.
func (s *session) uncommitted(err error, sent bool) error {
	switch number := server.Number(err); {
	case number == server.NoSuchSavepoint, number != 0 && server.Broken(err), errors.Is(err, sql.ErrTxDone):
		return server.Lost(err)
	case number == server.SeveralRows, server.IsDeadlock(err): // of a statement in front of COMMIT; it was rolled back
		return err
	case number == 0 && !sent:
		return fmt.Errorf("%w: the connection broke before COMMIT, so nothing is committed: %w", dialects.ErrLost, err)
	case (number == 0 || s.driver.Pool.Galera.Load()) && !errors.Is(err, dialects.ErrLost):
		return fmt.Errorf("%w: the connection, or the cluster, broke before or during it: %w", dialects.ErrUnknown, err)
	}
	return err
}

// rollback ends whatever transaction is open, and gives the session its settings back. Undo proves
// the one in which work has run. A connection on which that cannot be confirmed is closed. So is
// one whose transaction ended in the work: what ends one implicitly may be LOCK TABLES, FLUSH
// TABLES WITH READ LOCK or BACKUP STAGE, whose locks are the session's. A statement of the work may
// go on there, so the session is ended at the server.
func (s *session) rollback(ctx context.Context, undo string) (err error) {
	if s.Owned != nil {
		_ = s.Finish(ctx, (*sql.Tx).Rollback)
		err = s.exec(ctx, undo, "ROLLBACK")
	} else {
		err = s.exec(ctx, undo)
		if err = cmp.Or(err, s.Finish(ctx, (*sql.Tx).Rollback)); err == nil {
			err = s.exec(ctx, commitAndRestore) // of a Lock, which has written nothing
		}
	}
	lost := err != nil
	if server.Number(err) == server.NoSuchSavepoint || errors.Is(err, sql.ErrTxDone) { // or COMMIT was refused
		err = s.exec(ctx, "ROLLBACK")
	}
	if lost {
		s.Destroy()
	}
	if err != nil && server.Number(err) == 0 {
		s.driver.Pool.End(ctx, s.thread)
	}
	return err
}

// close gives the connection back, unless the work has left something there.
func (s *session) close() {
	if s.Owned != nil && s.Owned.Strays.Load() {
		s.Destroy()
	}
	s.GiveBack()
}
