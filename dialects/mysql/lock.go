package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	library "github.com/go-sql-driver/mysql"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/kinds"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// place is a transaction in which rows are locked.
type place struct {
	client.Link
	front []string // goes in front of the lock, in its query
	label string   // of the lock, in the session's variable; empty: that stays as it is
	// joined says that the transaction has more to lose than the lock: it began before it. There
	// the lock is the last statement of its query: a KILL QUERY that falls between two statements
	// gets no answer.
	joined  bool
	patient bool          // on MariaDB the wait may last, whatever innodb_lock_wait_timeout is
	limit   time.Duration // of a wait at the server, behind which it asks again; 0: none
	cut     func()        // closes the connection under a statement; nil: the end of its context does
	flight  *flight       // travels behind the lock; nil: nothing does
	beat    *string       // gets what a heartbeat sends on Galera; nil: none is to come
}

// joinedLimit is how long the server lets a joined lock of a session wait. Then it asks again, at
// the end of the queue, if somebody is there to do so. Else the session is idle, and ends after the
// lease, with all that it holds.
func joinedLimit(lease time.Duration) time.Duration { return min(5*lease, 150*time.Second) }

// interruptLimit is how long a statement may ignore interrupts before the connection is closed.
func (p place) interruptLimit() time.Duration {
	if p.joined {
		return interrupt.GuestPatience
	}
	return interrupt.Patience
}

// errWaitOn says that a limit of the session, and not the caller's, has ended a wait.
var errWaitOn = errors.New("a limit of the session has ended the wait")

// lockJoined locks rows in a transaction that began before, whoever began it. The errors of single
// statements leave an InnoDB transaction and its locks alone, except that of a deadlock, and with
// innodb_rollback_on_timeout that of a wait that was too long.
func (d *Driver) lockJoined(ctx context.Context, at place, request dialects.Request) (got dialects.Grant, err error) {
	at.joined = true
	if at.limit > 0 && d.pool.Galera.Load() { // no node sees a circle of sessions that wait on different nodes
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, at.limit)
		defer cancel()
	}
	for {
		got, err = d.lock(ctx, at, request)
		if server.Number(err) == server.LockWaitTimeout {
			clean, cancel := interrupt.Detached(ctx)
			ended := inTransaction(clean, at, readOnly)
			cancel()
			if ended != nil {
				return got, server.Lost(ended)
			}
		}
		switch {
		case server.Number(err) == 0 && errors.Is(err, context.Canceled), // the interrupt had no effect
			server.Broken(err), server.Aborted(err),
			errors.Is(err, library.ErrBusyBuffer): // the server's last words came with the end of the wait
			return got, server.Lost(err)
		case !errors.Is(err, errWaitOn):
			return got, err
		}
	}
}

// numbered locks, and where that gives no token has the server's run numbered, and locks again.
func (d *Driver) numbered(ctx context.Context, table string, lock func() error) error {
	for tries := 0; ; tries++ {
		if err := lock(); !errors.Is(err, fencing.ErrNoRun) || tries == fencing.Tries {
			return err
		}
		if err := d.numberRun(ctx, table); err != nil {
			return err
		}
	}
}

func (d *Driver) lock(ctx context.Context, at place, request dialects.Request) (dialects.Grant, error) {
	if d.pool.Galera.Load() {
		return d.lockInCluster(ctx, at, request)
	}
	return d.lockHere(ctx, at, request)
}

// lockHere locks the rows of request at this server.
func (d *Driver) lockHere(ctx context.Context, at place, request dialects.Request) (got dialects.Grant, err error) {
	if err := d.tables.Lockable(ctx, at.Querier, request, at.interruptLimit(), at.cut); err != nil {
		return got, err
	}
	limit, isDeadline := d.limitOf(ctx, at, request)
	tag, running := client.NewTag(), ctx
	script, err := scriptOf(at, request, limit, sqltext.Comment(labelOf(request), tag))
	if err != nil {
		return got, err
	}
	if at.flight != nil { // the limit of the wait is the server's to keep
		running = request.Work.Context
	}
	var locked []string
	err = d.pool.Await(running, isDeadline, tag, at.interruptLimit(), at.cut, func(ctx context.Context) (err error) {
		switch {
		case at.flight != nil:
			err = at.flight.send(ctx, script)
		case onlySlot(request) && at.label != "":
			var rows int64
			rows, err = at.Run(ctx, script...)
			locked = make([]string, rows)
		default:
			var columns [][]string
			if columns, err = at.AskAll(ctx, script...); err == nil {
				locked, columns = columns[0], columns[1:]
			}
			if len(columns) > 0 {
				got.Answer = columns[0]
			}
		}
		return err
	})
	switch {
	case at.flight != nil && at.flight.ran:
		got.Affected = at.flight.affected
		return got, err
	case err == nil:
		return d.granted(ctx, at, request, got, locked)
	}
	if request.Fence != "" {
		if err = fenceOf(request.Fence).explain(request.Fence, err); errors.Is(err, dialects.ErrNotInstalled) {
			return got, err
		}
	}
	if err = server.Classify(err, request); d.waitsOn(ctx, at, request, err) {
		err = fmt.Errorf("%w: %w", errWaitOn, err)
	}
	return got, err
}

// granted is what comes with the rows that are locked, if those are all.
func (d *Driver) granted(ctx context.Context, at place, request dialects.Request, got dialects.Grant,
	locked []string,
) (_ dialects.Grant, err error) {
	permit := permitOf(request)
	if last := len(locked) - 1; request.Fence != "" && last >= 0 {
		got.Token, err = tokenOf(locked[last])
		if !permit {
			locked = locked[:last]
		}
	}
	switch {
	case permit && len(locked) == 0:
		err = fmt.Errorf("%w: no permit is free", dialects.ErrNotAcquired)
	case permit:
		got.Row, _, _ = strings.Cut(locked[0], " ")
	case len(valuesOf(request, locked)) < len(request.Values):
		return d.explain(ctx, at, request, got)
	}
	return got, err
}

func permitOf(request dialects.Request) bool { return request.AnyOne != "" && request.Try }

// onlySlot is a lock that has no answer but its grant.
func onlySlot(request dialects.Request) bool {
	return request.Slots > 0 && len(request.Values) == 1 && request.Fence == "" && !request.Work.Looks()
}

// scriptOf is what is sent for a lock.
func scriptOf(at place, request dialects.Request, limit time.Duration, comment string) (script []string, err error) {
	clause, label, behind := "", "", []string(nil)
	if request.Try {
		clause = sqltext.SkipLocked
	}
	if onlySlot(request) {
		label = at.label
	}
	query, err := lockSQL(request, clause, limit, at.patient, comment, label)
	switch {
	case err != nil:
	case at.flight != nil:
		behind = at.flight.script(comment)
	case request.Work.Looks():
		behind, err = kinds.StatementsOf(*request.Work.Look)
	}
	return slices.Concat(at.front, []string{query}, behind), err
}

// limitOf is how long the server lets a wait last; 0: as long as its settings do. IsDeadline says
// that it is that of ctx. A limit of the session's own on statements, once seen, is overruled.
func (d *Driver) limitOf(ctx context.Context, at place, request dialects.Request) (limit time.Duration,
	isDeadline bool,
) {
	limit = interrupt.Limit(ctx, request)
	switch {
	case request.Try:
		return 0, false
	case at.limit > 0 && (limit == 0 || at.limit < limit):
		return at.limit, false
	case limit == 0 && d.limited.Load():
		return interrupt.Longest, false
	}
	return limit, limit > 0
}

// waitsOn tells whether a limit has ended a wait which is not the caller's: that of the place, or
// max_execution_time, max_statement_time, innodb_lock_wait_timeout (50 s by default) of a session
// of ours. In a caller's transaction they are the caller's.
func (d *Driver) waitsOn(ctx context.Context, at place, request dialects.Request, err error) bool {
	if request.Try || ended(ctx) || at.joined && at.limit == 0 {
		return false
	}
	switch server.Number(err) {
	case server.StatementTimeout, server.QueryTimeout:
		if at.limit == 0 {
			d.limited.Store(true)
		}
		return true
	}
	return server.Number(err) == server.LockWaitTimeout
}

func ended(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// explain tells rows that are missing from rows that are held, of which fewer were locked than
// request names. A plain SELECT would tell, but at REPEATABLE READ it would take the transaction's
// snapshot before its lock.
func (d *Driver) explain(ctx context.Context, at place, request dialects.Request, got dialects.Grant) (
	dialects.Grant, error,
) {
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	if request.Shared {
		name, err := at.Ask(clean, "SELECT CONCAT(@@hostname, ':', @@port) FROM DUAL WHERE NOT ("+
			sqltext.Writable+")")
		if err == nil && len(name) > 0 {
			return got, fmt.Errorf("%w: the server %s is read_only, where a shared lock excludes nobody: connect to "+
				"the server that takes the writes", dialects.ErrUnsafeEngine, name[0])
		}
	}
	if request.Try && at.joined && request.Slots > 0 {
		return got, fmt.Errorf("%w: another session holds it or waits for it", dialects.ErrNotAcquired)
	}
	query, err := lockSQL(request, nowait, 0, false, sqltext.Comment(labelOf(request), ""), "")
	if err != nil {
		return got, err
	}
	existing, err := at.Ask(clean, query)
	if last := len(existing) - 1; err == nil && request.Fence != "" {
		got.Token, err = tokenOf(existing[last])
		existing = existing[:last]
	}
	if err != nil {
		return got, server.Classify(err, request)
	}
	if existing = valuesOf(request, existing); request.Try && at.joined && len(existing) == len(request.Values) {
		return got, nil // released in the meantime, and ours now
	}
	return got, locktable.MissingRows(request, existing)
}

// refusesWrites says whether err is that of a server which is read only, as a former primary is.
func refusesWrites(err error) bool {
	switch server.Number(err) {
	case server.OnlyReads, server.ReadOnlyMode, server.NodeNotReady:
		return true
	}
	return errors.Is(err, dialects.ErrUnsafeEngine)
}
