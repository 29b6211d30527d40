package mysql

import (
	"cmp"
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
	// joined says that the transaction began before the lock, and has more to lose. There the lock
	// is the last statement of its query: a KILL QUERY that falls between two gets no answer.
	joined bool
	limit  time.Duration // of a wait at the server, behind which it asks again; 0: none
	cut    func()        // closes the connection under a statement; nil: the end of its context does
}

// joinedLimit is how long the server lets a joined lock of a session wait. Then that asks again, at
// the end of the queue, or its client is gone: it ends after the lease, with all that it holds.
func joinedLimit(lease time.Duration) time.Duration { return min(5*lease, 150*time.Second) }

// interruptLimit is how long a statement may ignore interrupts before the connection is closed.
func (p place) interruptLimit() time.Duration {
	if p.joined {
		return interrupt.GuestPatience
	}
	return interrupt.Patience
}

// patient says that on MariaDB innodb_lock_wait_timeout is the caller's, and ours to overrule: at 0
// nobody stands in the queue. On a connection of Open it is long.
func (p place) patient() bool { return !p.joined && !p.Several }

// errWaitOn says that a limit of the session, and not the caller's, has ended a wait.
var errWaitOn = errors.New("a limit of the session has ended the wait")

// join locks rows in a transaction that began before, whoever began it. InnoDB rolls that back for
// a deadlock, and with innodb_rollback_on_timeout for a wait that was too long, and else for no
// error of a statement.
func (d *Driver) join(ctx context.Context, at place, request dialects.Request) (got dialects.Grant, err error) {
	at.joined = true
	if at.limit > 0 && d.pool.Galera.Load() { // no node sees a circle of sessions that wait on different nodes
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, at.limit)
		defer cancel()
	}
	err = d.numbered(ctx, request.Fence, func() (err error) { // on another connection: its errors are no loss
		for {
			got, err = d.lock(ctx, at, request)
			if server.Number(err) == server.LockWaitTimeout {
				clean, cancel := interrupt.Detached(ctx)
				ended := inTransaction(clean, at, "", readOnly)
				cancel()
				if ended != nil {
					return server.Lost(ended)
				}
			}
			switch {
			case server.Number(err) == 0 && errors.Is(err, context.Canceled), // the interrupt had no effect
				server.Broken(err), server.Aborted(err),
				errors.Is(err, library.ErrBusyBuffer): // the server's last words came with the end of the wait
				return server.Lost(err)
			case !errors.Is(err, errWaitOn):
				return err
			}
		}
	})
	return got, err
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
	var behind, locked []string
	if request.Work.Looks() {
		if behind, err = kinds.StatementsOf(*request.Work.Look); err != nil {
			return got, err
		}
	}
	err = d.await(ctx, ctx, at, request, func(ctx context.Context, query, _ string) (err error) {
		script := slices.Concat(at.front, []string{query}, behind)
		if at.Several && onlySlot(request) {
			rows, err := at.Run(ctx, script...)
			locked = make([]string, rows)
			return err
		}
		columns, err := at.AskAll(ctx, script...)
		if err != nil {
			return err
		}
		if len(columns) > 0 { // else an interrupt fell between two statements
			locked = columns[0]
		}
		if len(columns) > 1 {
			got.Answer = columns[1]
		}
		return nil
	})
	if err != nil {
		return got, err
	}
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
		err = d.explain(ctx, at, request)
	}
	return got, err
}

// await sends the statement that locks the rows of request by send, with what else that has to
// send, as long as running lasts. Ctx bounds the wait for the lock.
func (d *Driver) await(ctx, running context.Context, at place, request dialects.Request,
	send func(ctx context.Context, query, comment string) error,
) error {
	if err := d.tables.Lockable(ctx, at.Querier, request, at.interruptLimit(), at.cut); err != nil {
		return err
	}
	limit, isDeadline := d.limitOf(ctx, at, request)
	tag, clause := client.NewTag(), ""
	if request.Try {
		clause = sqltext.SkipLocked
	}
	comment := sqltext.Comment(labelOf(request), tag)
	query, err := lockSQL(at, request, clause, limit, comment)
	if err != nil {
		return err
	}
	err = d.pool.Await(running, isDeadline, tag, at.interruptLimit(), at.cut, func(ctx context.Context) error {
		return send(ctx, query, comment)
	})
	if request.Fence != "" {
		if err = fenceOf(request.Fence).explain(request.Fence, err); errors.Is(err, dialects.ErrNotInstalled) {
			return err
		}
	}
	if err = server.Classify(err, request); d.waitsOn(ctx, at, request, err) {
		err = fmt.Errorf("%w: %w", errWaitOn, err)
	}
	return err
}

func permitOf(request dialects.Request) bool { return request.AnyOne != "" && request.Try }

// onlySlot is a lock that has no answer but its grant.
func onlySlot(request dialects.Request) bool {
	return request.Slots > 0 && len(request.Values) == 1 && request.Fence == "" && !request.Work.Looks()
}

// limitOf is how long the server lets a wait last; 0: as long as its settings do. IsDeadline says
// that it is that of ctx. A limit of the session's own on statements, once seen, is overruled.
func (d *Driver) limitOf(ctx context.Context, at place, request dialects.Request) (_ time.Duration, isDeadline bool) {
	limit := interrupt.Limit(ctx, request)
	switch {
	case request.Try || limit == 0 && at.limit == 0 && !d.limited.Load():
		return 0, false
	case limit > 0 && (at.limit == 0 || limit <= at.limit):
		return limit, true
	}
	return cmp.Or(at.limit, interrupt.Longest), false
}

// waitsOn tells whether a limit that is not the caller's has ended a wait: that of the place, or
// max_execution_time, max_statement_time, innodb_lock_wait_timeout (50 s by default) of a session
// of ours.
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

// explain is why fewer rows were locked than request names: some are missing, or held. At
// REPEATABLE READ a plain SELECT would take the transaction's snapshot before its lock.
func (d *Driver) explain(ctx context.Context, at place, request dialects.Request) error {
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	if request.Shared {
		if err := writes(clean, at.Link); err != nil {
			return err
		}
	}
	if request.Try && at.joined && request.Slots > 0 {
		return fmt.Errorf("%w: another session holds it or waits for it", dialects.ErrNotAcquired)
	}
	query, err := lockSQL(place{joined: true}, request, nowait, 0, "")
	if err != nil {
		return err
	}
	existing, err := at.Ask(clean, query)
	if err != nil {
		return server.Classify(err, request)
	}
	return locktable.MissingRows(request, valuesOf(request, existing))
}

// writes refuses a server that takes no writes, where a shared lock finds no row.
func writes(ctx context.Context, link client.Link) error {
	name, err := link.Ask(ctx, "SELECT CONCAT(@@hostname, ':', @@port) FROM DUAL WHERE NOT ("+sqltext.Writable+")")
	if err != nil || len(name) == 0 {
		return nil
	}
	return fmt.Errorf("%w: the server %s is read_only, where a shared lock excludes nobody: connect to the server "+
		"that takes the writes", dialects.ErrUnsafeEngine, name[0])
}

// refusesWrites says whether err is that of a server which is read only, as a former primary is.
func refusesWrites(err error) bool {
	switch server.Number(err) {
	case server.OnlyReads, server.ReadOnlyMode, server.NodeNotReady:
		return true
	}
	return errors.Is(err, dialects.ErrUnsafeEngine)
}
