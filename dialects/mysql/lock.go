package mysql

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	library "github.com/go-sql-driver/mysql"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/sqlconn"
	"github.com/txlock/txlock/dialects/mysql/internal/installation"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/internal/label"
	"github.com/txlock/txlock/internal/locktable"
)

// errWaitOn says that a limit of the session, and not the caller's, has ended a wait: ours, or
// max_execution_time, max_statement_time, innodb_lock_wait_timeout.
var errWaitOn = errors.New("a limit of the session has ended the wait")

// joinRows locks rows in a transaction that began before, whoever began it. InnoDB rolls that back
// for a deadlock, with innodb_rollback_on_timeout for a wait that was too long, for no other error.
func (s *session) joinRows(ctx context.Context, request dialects.Request, front string) (got dialects.Grant,
	err error,
) {
	if s.limit > 0 && s.driver.Pool.Galera.Load() { // no node sees a circle of sessions that wait on different nodes
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.limit)
		defer cancel()
	}
	err = s.driver.numbered(ctx, request.Fence, func() (err error) { // on another connection: its errors are no loss
		for {
			got, err = s.lock(ctx, request, front)
			if server.Number(err) == server.LockWaitTimeout {
				clean, cancel := interrupt.Detached(ctx)
				ended := s.inTransaction(clean, readOnly)
				cancel()
				if ended != nil {
					return server.Lost(ended)
				}
			}
			switch {
			case server.Number(err) == 0 && errors.Is(err, context.Canceled), // the interrupt had no effect
				server.Broken(err), errors.Is(err, library.ErrBusyBuffer): // its last words came with the answer
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

// lock locks the rows of request, behind what goes in front.
func (s *session) lock(ctx context.Context, request dialects.Request, front ...string) (got dialects.Grant, err error) {
	if !s.driver.Pool.Galera.Load() {
		return s.lockHere(ctx, request, front)
	}
	if err = keptInCluster(request); err != nil {
		return got, err
	}
	// So long a joined wait lasts at a time. KILL QUERY would end the transaction (error 1213).
	const atOnce = 250 * time.Millisecond
	here, alone, wait := *s, request, ctx
	alone.Fence, alone.Work = "", nil // behind the change
	if s.joined {
		wait, here.limit = context.WithoutCancel(ctx), atOnce
		if deadline, ok := ctx.Deadline(); ok {
			here.limit = max(min(atOnce, time.Until(deadline)), time.Millisecond)
		}
	}
	got, err = here.lockHere(wait, alone, front)
	switch {
	case errors.Is(err, errWaitOn) && ended(ctx):
		return got, fmt.Errorf("%w: another session holds it; no node of Galera sees whether that waits for locks of "+
			"this one", dialects.ErrNotAcquired)
	case err == nil && request.Ours:
		got.Token, err = s.certifyAndDraw(ctx, request)
		err = server.Classify(err, request)
	}
	if err == nil && request.Work.Looks() {
		got.Answer, err = s.run(ctx, *request.Work.Look)
	}
	return got, err
}

// lockHere locks the rows of request at this server.
func (s *session) lockHere(ctx context.Context, request dialects.Request, front []string) (got dialects.Grant,
	err error,
) {
	var further, locked []string
	if request.Work.Looks() {
		further = installation.StatementsOf(*request.Work.Look)
	}
	err = s.await(ctx, ctx, request, func(ctx context.Context, query, _ string) error {
		script := slices.Concat(front, []string{query}, further)
		if s.Owned != nil && onlySlot(request) {
			rows, err := s.Conn.Run(ctx, script...)
			locked = make([]string, rows)
			return err
		}
		grids, err := s.Grids(ctx, script...)
		locked, _ = sqlconn.Column(grids, err) // none where an interrupt fell between two statements
		if len(grids) > 1 {
			got.Answer, _ = sqlconn.Column(grids[1:], err)
		}
		return err
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
	case (permit || request.Work.TakesFree()) && len(locked) == 0:
		err = fmt.Errorf("%w: none is free", dialects.ErrNotAcquired)
	case request.Work.TakesFree():
		request.Work.Free.Found = locked
	case permit:
		got.Row, _, _ = strings.Cut(locked[0], " ")
	case len(valuesOf(request, locked)) < len(request.Values):
		err = s.explain(ctx, request)
	}
	return got, err
}

// await has send send the statement that locks the rows of request, as long as running lasts. Ctx
// bounds the wait for the lock: on the server too, unless the session's limit is shorter.
func (s *session) await(ctx, running context.Context, request dialects.Request,
	send func(ctx context.Context, query, comment string) error,
) error {
	if err := s.lockable(ctx, request); err != nil {
		return err
	}
	limit, clause := interrupt.Limit(ctx, request), ""
	isDeadline := limit > 0 && (s.limit == 0 || limit <= s.limit)
	switch {
	case request.Try:
		clause = server.SkipLocked
	case !isDeadline:
		limit = s.limit
	}
	err := s.driver.Pool.Await(running, isDeadline, s.patience, s.cut, func(ctx context.Context, tag string) error {
		comment := server.Comment(label.Begin+request.Label, tag)
		query, err := s.lockSQL(request, clause, limit, comment)
		if err == nil {
			err = send(ctx, query, comment)
		}
		return err
	})
	if request.Fence != "" {
		err = fenceOf(request.Fence).explain(request.Fence, err)
	}
	if isOfWork(err) || errors.Is(err, dialects.ErrNotInstalled) {
		return err
	}
	number := server.Number(err)
	limited := number == server.StatementTimeout || number == server.QueryTimeout || number == server.LockWaitTimeout
	err = server.Classify(err, request)
	if limited && !request.Try && !ended(ctx) && (!s.joined || s.limit > 0 || isDeadline) {
		err = fmt.Errorf("%w: %w", errWaitOn, err)
	}
	return err
}

func permitOf(request dialects.Request) bool { return request.AnyOne != "" && request.Try }

// onlySlot is a lock that has no answer but its grant.
func onlySlot(request dialects.Request) bool {
	return request.Slots > 0 && len(request.Values) == 1 && request.Fence == "" && !request.Work.Looks() &&
		!request.Work.IsExec()
}

// lockable refuses a table whose rows FOR UPDATE does not lock: that is no error of the server's.
// Each table is asked for once, by a statement that may have to wait for DDL.
func (s *session) lockable(ctx context.Context, request dialects.Request) error {
	names := []string{request.Table}
	if request.Work.Looks() {
		names = append(names, request.Work.Look.Table)
	}
	for _, name := range names {
		if _, known := s.driver.inInnoDB.Load(name); known {
			continue
		}
		quoted, err := server.QuoteTable(name)
		if err != nil {
			return err
		}
		// It knows what the name means in this session, and takes no snapshot, as MySQL's
		// information_schema does. MariaDB leaves the engine out in some sql_modes.
		var lines [][]string
		err = s.driver.Pool.Await(ctx, false, s.patience, s.cut, func(ctx context.Context, tag string) (err error) {
			lines, err = s.Grid(ctx, server.OnMariaDB("sql_mode=''")+"SHOW "+server.Comment("", tag)+
				"CREATE TABLE "+quoted)
			return err
		})
		switch number := server.Number(err); {
		case number == server.NoPrivilege && request.Column != "":
			return fmt.Errorf("the user is not shown whether %.100s is a table whose rows can be locked: GRANT SELECT "+
				"on all of it: %w", name, server.Classify(err, request))
		case number == server.NoSuchTable, number == server.UnknownDatabase, number == server.NoPrivilege:
			return nil // the next statement says it better
		case err != nil:
			return server.Classify(err, request)
		case len(lines) == 0 || !inInnoDB.MatchString(lines[0][1]):
			return fmt.Errorf("%w: %.100s is a view, a temporary table, which others do not see, or a table of "+
				"another engine than InnoDB: txlock locks rows of InnoDB's alone", dialects.ErrUnsafeEngine, name)
		}
		s.driver.inInnoDB.Store(name, true)
	}
	return nil
}

// inInnoDB is the definition of a table with row locks. MySQL names a tablespace in a comment.
var inInnoDB = regexp.MustCompile(`(?s)^CREATE TABLE .*\n\) (/\*.*\*/ )?ENGINE=InnoDB\b`)

func ended(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// explain is why fewer rows were locked than request names. At REPEATABLE READ a plain SELECT would
// take the transaction's snapshot before its lock.
func (s *session) explain(ctx context.Context, request dialects.Request) error {
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	if request.Shared {
		name, err := s.Ask(clean, "SELECT CONCAT(@@hostname, ':', @@port) FROM DUAL WHERE NOT ("+server.Writable+")")
		if err == nil && len(name) > 0 {
			return fmt.Errorf("%w: the server %s is read_only, where a shared lock excludes nobody: connect to the "+
				"server that takes the writes", dialects.ErrUnsafeEngine, name[0])
		}
	}
	if request.Try && s.joined && request.Slots > 0 {
		return fmt.Errorf("%w: another session holds it or waits for it", dialects.ErrNotAcquired)
	}
	query, err := s.lockSQL(request, nowait, 0, "")
	if err != nil {
		return err
	}
	existing, err := s.Ask(clean, query)
	if err != nil {
		return server.Classify(err, request)
	}
	return locktable.MissingRows(request, valuesOf(request, existing))
}
