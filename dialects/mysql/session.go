package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/savepoint"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/kinds"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/peer"
)

// session is a pooled connection with its transaction.
type session struct {
	driver     *Driver
	conn       client.Conn
	work       bool          // of the caller's runs in the session
	saved      bool          // the savepoint that proves the work's transaction is set
	changed    bool          // on a caller's pool: its settings have changed, or may have
	thread     client.Thread // zero: no work runs, or nobody knows
	abandoned  bool          // a statement of it may still run there
	readOnly   bool          // the server was, at a heartbeat
	committed  bool          // by the flight of its statements
	lease      time.Duration
	savepoints savepoint.Stack
	beat       string // of a lock on Galera
}

// begin takes a connection, and locks in a new transaction. Where a limit of the session has ended
// the wait, it waits on in another: with innodb_rollback_on_timeout the first one is gone. After an
// error none is open.
func (s *session) begin(ctx context.Context, request dialects.Request) (got dialects.Grant, err error) {
	if s.conn, err = s.driver.pool.Acquire(ctx); err != nil {
		return got, err
	}
	returned := false
	defer func() {
		if !returned { // the client library has panicked
			s.destroy()
		}
		if !returned || err != nil || s.committed {
			s.close()
		}
	}()
	if s.work {
		s.thread = s.conn.Thread(ctx)
	}
	for overtaken := 0; ; overtaken++ {
		if got, err = s.lock(ctx, request); err == nil {
			break
		}
		clean, cancel := interrupt.Detached(ctx)
		broken := s.rollback(clean)
		cancel()
		if s.driver.pool.Galera.Load() {
			err = overtakenBy(err, request, overtaken)
		}
		if refusesWrites(err) { // the next call looks for the primary again
			s.destroy()
		}
		if broken != nil || !errors.Is(err, errWaitOn) || ended(ctx) {
			break
		}
	}
	returned = true
	return got, err
}

func (s *session) lock(ctx context.Context, request dialects.Request) (got dialects.Grant, err error) {
	at := place{label: s.driver.label(request), cut: s.conn.Cut(), beat: &s.beat, flight: s.flightOf(request)}
	owned, saves := s.conn.Owned, s.work && at.flight == nil
	at.patient = owned == nil
	settings := s.settingsSQL(request, at.label)
	if owned == nil { // where they come before the BEGIN of the client library
		if err = s.exec(ctx, settings); err == nil && saves {
			err = s.conn.Begin(ctx)
		}
		if err != nil {
			return got, server.Classify(err, request)
		}
	} else if settings != "" {
		at.front = []string{settings}
	}
	if saves {
		at.front = append(at.front, client.Save)
	}
	at.Link = s.conn.Link()
	if got, err = s.driver.lock(ctx, at, request); err != nil {
		return got, err
	}
	s.saved, s.committed = saves, at.flight != nil
	if owned != nil {
		owned.Lease = request.Lease
		if saves { // last: database/sql has a goroutine for each query in a transaction; and it sends nothing
			err = s.conn.Begin(context.WithoutCancel(ctx))
		}
	}
	return got, err
}

// settingsSQL is the statement that gives the session the settings that a lock needs, and its
// label unless the lock itself does. On a pool of Open they stay: it is empty for most locks.
func (s *session) settingsSQL(request dialects.Request, label string) string {
	text := ""
	switch {
	case s.conn.Owned == nil:
		s.changed, text = true, guardSQL
	case s.conn.Owned.Lease != request.Lease:
		text = client.Settings
		// The pool lets its idle connections go before the server does.
		s.driver.pool.DB.SetConnMaxIdleTime(request.Lease / 2)
		s.conn.Owned.Lease = 0 // until it is known what the session has
	}
	if text != "" {
		text += leaseSQL(request.Lease)
	}
	switch {
	case label == "" || onlySlot(request):
		return text
	case text == "":
		return "SET @" + sqltext.Variable + " = " + label
	}
	return text + ", @" + sqltext.Variable + " = " + label
}

// label is the value of the variable in a session that begins with request, or empty.
func (d *Driver) label(request dialects.Request) string {
	if d.pool.Mute.Load() {
		return ""
	}
	return "'" + labelOf(request) + "'"
}

func (s *session) exec(ctx context.Context, statements ...string) error {
	_, err := s.conn.Link().Run(ctx, statements...)
	return err
}

// Tx implements dialects.Session.
func (s *session) Tx() *sql.Tx { return s.conn.Tx() }

// Socket implements dialects.Session.
func (s *session) Socket() net.Conn { return s.conn.Socket }

// pingMark is the comment of a heartbeat.
const pingMark = sqltext.CommentMark + "ping */ "

// Ping implements dialects.Session.
func (s *session) Ping(ctx context.Context) error {
	err := s.proveInTransaction(ctx)
	if err == nil && s.beat != "" {
		err = s.exec(ctx, s.beat)
	}
	return err
}

// proveInTransaction is an error unless the transaction of the session goes on, and on a server
// that has become read only: SET GLOBAL read_only ends no session, and while this one goes on,
// another server may take the writes and grant the same lock.
func (s *session) proveInTransaction(ctx context.Context) error {
	err := inTransaction(ctx, s.conn, "IF("+sqltext.Writable+", 0, (SELECT 1 UNION ALL SELECT 2))")
	if server.Number(err) == server.SeveralRows {
		s.readOnly = true
		return errors.New("the server is read_only, so another may grant the same lock")
	}
	return err
}

// Join implements dialects.Session. A miss leaves the savepoint behind, which does no harm.
func (s *session) Join(ctx context.Context, request dialects.Request, work func(tx *sql.Tx) error) (
	got dialects.Grant, err error,
) {
	if request.Work == nil {
		return s.join(ctx, request)
	}
	if request.Work.IsExec() {
		work = func(*sql.Tx) (err error) {
			got.Affected, err = s.runAll(request.Work.Context, request.Work.Statements)
			return err
		}
	}
	name := "SAVEPOINT " + s.savepoints.Name()
	if got, err = s.join(ctx, request, name); err != nil {
		return got, err
	}
	err = s.savepoints.Run(func() error { return work(s.conn.Tx()) }, func(undo bool) error {
		clean, cancel := interrupt.Detached(ctx) // the connection is closed when ctx ends
		defer cancel()
		if undo {
			return server.Lost(s.exec(clean, "ROLLBACK TO "+name))
		}
		return server.Lost(s.exec(clean, "RELEASE "+name))
	})
	return got, err
}

// join locks in the transaction of the session, behind what goes in front. Where no work runs, and
// so no COMMIT proves anything, the transaction is asked for first: the lock would begin another,
// with which heartbeats are content.
func (s *session) join(ctx context.Context, request dialects.Request, front ...string) (got dialects.Grant, err error) {
	// The connection would be closed when ctx ends, and a server that stalls for a moment loses no
	// lock.
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), interrupt.GuestPatience)
	defer cancel()
	if err = s.conn.Busy(); err != nil {
		return got, err
	}
	if !s.work {
		err = s.proveInTransaction(clean)
	} else if len(request.Values) == 0 {
		err = s.exec(clean, front...)
	}
	if err != nil || len(request.Values) == 0 {
		return got, server.Lost(err)
	}
	at := place{Link: s.conn.Link(), cut: s.conn.Cut(), front: front, limit: joinedLimit(s.lease)}
	if _, more, found := strings.Cut(s.driver.label(request), " "); found { // behind the number of the process
		at.label = "CONCAT(@" + sqltext.Variable + ", ' " + more + ")"
	}
	err = s.driver.numbered(ctx, request.Fence, func() (err error) {
		got, err = s.driver.lockJoined(ctx, at, request)
		return err
	})
	switch {
	case errors.Is(err, dialects.ErrDeadlock), server.Aborted(err):
		return got, server.Lost(err)
	case err == nil && at.label != "" && !onlySlot(request) && s.conn.Owned != nil:
		after, cancel := interrupt.Detached(ctx)
		defer cancel()
		_ = s.exec(after, "SET @"+sqltext.Variable+" = "+at.label)
	}
	return got, err
}

// End implements dialects.Session.
func (s *session) End(ctx context.Context, by time.Time, commit bool, last ...dialects.Query) (err error) {
	defer s.close()
	ctx, done := interrupt.Bound(ctx, by, s.conn.Cut(), s.destroy)
	defer done(&err)
	ended := s.conn.CloseTx(ctx)
	if !commit {
		return server.Lost(s.rollback(ctx))
	}
	if err = cmp.Or(s.savepoints.Err(), server.Lost(ended)); err == nil {
		err = s.commit(ctx, last)
	}
	if err != nil {
		err = errors.Join(err, s.rollback(ctx))
	}
	return err
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
	sent, err := false, driver.ErrBadConn
	switch socket := (peer.Conn{Conn: s.conn.Socket}); {
	case socket.Gone(), socket.Unread(): // nobody would read it
	case s.conn.Owned != nil:
		sent, err = true, s.exec(ctx, append(script, "COMMIT")...)
	default:
		if err = s.exec(ctx, script...); err == nil { // and no COMMIT of the client library, which no context would end
			sent, err = true, s.exec(ctx, commitAndRestore)
		}
	}
	switch number := server.Number(err); {
	case err == nil:
		s.changed = false
		if err := s.conn.Finish(ctx, (*sql.Tx).Rollback); err != nil { // there is nothing to roll back
			s.destroy()
		}
		return nil
	case number == server.NoSuchSavepoint, server.Aborted(err), errors.Is(err, sql.ErrTxDone):
		return server.Lost(err)
	case number == server.SeveralRows, server.IsDeadlock(err): // of a statement in front of COMMIT; it was rolled back
		return err
	case number == 0 && !sent:
		return fmt.Errorf("%w: the connection broke before COMMIT, so nothing is committed: %w", dialects.ErrLost, err)
	case (number == 0 || s.driver.pool.Galera.Load()) && !errors.Is(err, dialects.ErrLost):
		return fmt.Errorf("%w: the connection, or the cluster, broke before or during it: %w", dialects.ErrUnknown, err)
	}
	return err
}

// rollback ends whatever transaction is open and gives the session its settings back. A connection
// on which that cannot be confirmed is closed. So is one of a server that was read only: it may
// have the run of the server that its tokens were of, and another has taken over since. And so is
// one whose transaction ended in the work: what ends one implicitly may be LOCK TABLES, FLUSH
// TABLES WITH READ LOCK or BACKUP STAGE, whose locks are the session's.
func (s *session) rollback(ctx context.Context) (err error) {
	_ = s.conn.CloseTx(ctx) // a lock that is asked for again has another
	undo := ""
	if s.saved {
		undo = client.Undo
	}
	switch {
	case s.conn.Owned != nil:
		err = s.exec(ctx, undo, "ROLLBACK")
	case !s.changed:
	case !s.work: // and nothing was written
		err = s.exec(ctx, commitAndRestore)
	default: // work may have set a savepoint of that name
		err = s.exec(ctx, undo)
		if err = cmp.Or(err, s.conn.Finish(ctx, (*sql.Tx).Rollback)); err == nil {
			err = s.exec(ctx, "SET "+restored)
		}
	}
	if server.Number(err) == server.NoSuchSavepoint || errors.Is(err, sql.ErrTxDone) { // or COMMIT was refused
		err = s.exec(ctx, "ROLLBACK")
		s.destroy()
	}
	if err != nil || s.readOnly {
		s.destroy()
	}
	s.changed = false
	s.abandoned = err != nil && server.Number(err) == 0
	return err
}

// destroy closes the connection, and the server ends the session.
func (s *session) destroy() { s.conn.Destroy() }

// close gives the connection back, and ends at the server a session that cannot be ended over it.
func (s *session) close() {
	_ = s.conn.CloseTx(context.Background())
	if s.saved && s.conn.Owned != nil && s.conn.Owned.Strays {
		s.destroy()
	}
	s.conn.GiveBack()
	if s.abandoned {
		s.driver.pool.End(context.Background(), s.thread)
	}
}
