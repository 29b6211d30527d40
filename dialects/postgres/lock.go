package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// querier runs scripts on one connection.
type querier struct{ client.Line }

// way is how rows are locked, besides the request.
type way struct {
	joined bool    // in a transaction that has more to lose than this lock: a savepoint guards it
	mark   string  // of a transaction of its own, with work; see client.MarkSetting
	fails  verdict // for what comes behind the rows
	behind behind  // statements of the caller's

	first, last sqltext.Statement
}

// lockScript locks the rows of request: the beginning of a transaction or a savepoint, the settings
// of the wait, the queue locks, the rows, and what travels with them.
//
// The row is the truth. The queue lock, an advisory lock of the same transaction taken before the
// row, is the queue. PostgreSQL's row queue lets newcomers barge in between a commit and the
// wake-up of the first waiter (16 tight loops: 58 of 1600 out of order). The lock manager grants an
// advisory lock to the first waiter in the act of releasing it. Every session locks in the same
// order, queue locks by number and then rows by value, so that two requests cannot block each
// other. They are statements of their own, because a statement's snapshot is older than its wait: a
// row that came meanwhile would be missed. That does not matter for one row of our own, which
// nobody changes: see rowsSQL.
func lockScript(request dialects.Request, on way, limit time.Duration, bounded bool) (s sqltext.Script, at answers,
	err error,
) {
	t, err := textsOf(request, on.joined, on.fails)
	if err != nil {
		return nil, at, err
	}
	values, err := valuesOf(request, t.column)
	if err != nil {
		return nil, at, err
	}
	set, rows := argsOf(request, on, values)
	if !request.Try {
		set = append(set, sqltext.Milliseconds(limit), strconv.FormatBool(bounded))
	}
	s = append(make(sqltext.Script, 0, 9+len(on.behind.Script)), on.first,
		sqltext.Statement{SQL: t.set, Args: set, Silent: true})
	if t.queue != "" {
		at.passed = len(s)
		s = append(s, sqltext.Statement{SQL: t.queue, Args: []any{queueArg(request)}, Silent: !request.Try})
	}
	at.rows = len(s)
	s = append(s, sqltext.Statement{SQL: t.rows, Args: rows})
	if request.Fence != "" {
		fence, err := fenceOf(request.Fence)
		if err != nil {
			return nil, at, err
		}
		at.token = len(s)
		s = append(s, fence.token(request))
	}
	if request.Work.Looks() {
		s = append(s, scriptOf(*request.Work.Look)...)
		at.look = len(s) - 1
	}
	if on.last.SQL != "" {
		s = append(s, on.last)
	}
	return s, at, nil
}

// dropSnapshot comes last in the lock of a session that then is idle. The server keeps the
// snapshot of the last statement until the next one comes; a SET has none. A heartbeat would be too
// late: who has begun to wait for the snapshot, CREATE INDEX CONCURRENTLY say, waits for the end of
// the transaction.
var dropSnapshot = sqltext.Silent("set local txlock.idle = ''")

// A statement that waits has a snapshot as long as it waits. VACUUM keeps what was deleted since,
// and CREATE INDEX CONCURRENTLY waits for it; if the holder of the lock runs that, they wait in a
// circle that the server does not see. So a wait ends after maxWait, and begins again, at the end
// of the queue. With a lease of less than 12 s it is five of them: where nobody is there to go on
// with a nested wait, its session is idle, and ends with all that it holds.
const (
	maxWait      = time.Minute
	leasesToWait = 5
)

// limitOf is the server's limit of a wait. Bounded: ctx has a deadline. Final: the limit is that.
func limitOf(ctx context.Context, request dialects.Request) (limit time.Duration, bounded, final bool) {
	longest := maxWait
	if request.Lease > 0 {
		longest = min(maxWait, leasesToWait*request.Lease)
	}
	if limit = interrupt.Limit(ctx, request); limit > 0 && limit <= longest {
		return limit, true, true
	}
	return longest, limit > 0, false
}

// The verdicts on a lock.
var (
	errAgain    = errors.New("the wait is to begin again")
	errMissed   = fmt.Errorf("%w: another session holds it or waits for it", dialects.ErrNotAcquired)
	errSnapshot = fmt.Errorf("%w: the transaction's snapshot is older than the lock, so it would read stale data "+
		"under it; begin it at READ COMMITTED", dialects.ErrIsolation)

	// ours tells a verdict of the server's from what somebody's value may say.
	ours = rand.Text()
	// verdicts are errors that the server raises, by their names, so that what comes behind, the
	// release of the savepoint or COMMIT, is not reached.
	verdicts = map[string]error{unsuitable: errSnapshot, others: locktable.ErrRows, noRun: fencing.ErrNoRun}
)

const (
	unsuitable = "unsuitable" // transaction
	others     = "others"     // have a row, or it does not exist
	noRun      = "run"        // of the server that has an epoch
)

// failSQL is an integer that is none. The server shows what it is instead. It must not know the
// text before the statement runs.
func failSQL(verdict string) string { return "concat('txlock: ', '" + verdict + " " + ours + "')::int" }

// lock sends the script that locks the rows of request, and reads the answers.
func (q querier) lock(ctx context.Context, request dialects.Request, on way,
	send func(context.Context, sqltext.Script) ([][]string, error),
) (got dialects.Grant, err error) {
	limit, bounded, final := limitOf(ctx, request)
	script, at, err := lockScript(request, on, limit, bounded)
	if err != nil {
		return got, err
	}
	running, told := ctx, !request.Try
	if on.behind.list != nil { // the limit of the wait is the server's to keep, that of the statements is not
		running, told = request.Work.Context, false
	}
	asked := time.Now()
	var columns [][]string
	err = q.interrupted(running, told, on.joined, func(ctx context.Context) (err error) {
		columns, err = send(ctx, append(script, on.behind.Script...))
		return err
	})
	if on.behind.list != nil {
		if affected, failed, is := on.behind.read(columns, len(script), err); is {
			return dialects.Grant{Affected: affected}, ended(running, failed)
		}
	}
	if err == nil {
		return at.read(request, columns)
	}
	switch state := server.State(err); {
	case state == server.InvalidText:
		for name, verdict := range verdicts {
			if strings.Contains(err.Error(), "txlock: "+name+" "+ours) {
				return got, verdict
			}
		}
	case state == server.LockNotAvailable && !final && time.Since(asked) >= limit:
		return got, errAgain
	case state == server.Serialization && !request.Ours: // at READ COMMITTED it has no other cause
		return got, fmt.Errorf("%w: while the wait lasted, the row has moved to another partition; ask again: %w",
			dialects.ErrNotAcquired, err)
	}
	return got, server.Classify(err, request)
}

// early is how long nobody interrupts a script with a savepoint in front. A cancel that came before
// that is set would cost the transaction. It travels on a connection of its own, so only one
// that begins together with the script could overtake it.
const early = 5 * time.Millisecond

// interrupted runs statements, and ends them on the server when ctx ends first. Told says that the
// server knows the deadline.
func (q querier) interrupted(ctx context.Context, told, joined bool, run func(context.Context) error) error {
	if !joined {
		return interrupt.Await(ctx, told, interrupt.Patience, q.Interrupt, q.Cut, run)
	}
	sent := time.Now()
	return interrupt.Await(ctx, told, interrupt.GuestPatience, func(ctx context.Context) error {
		time.Sleep(early - time.Since(sent))
		return q.Interrupt(ctx)
	}, q.Cut, run)
}

// answers are where they are in a script. 0: nowhere.
type answers struct{ passed, rows, token, look int }

// read judges the answers, and reads what comes with the rows.
func (at answers) read(request dialects.Request, columns [][]string) (got dialects.Grant, err error) {
	if len(columns) == 0 { // the client library shows no answers: all is judged by the server
		return got, nil
	}
	rows := columns[at.rows]
	switch {
	case isAnyOne(request):
		if len(rows) == 0 {
			return got, errMissed
		}
		got.Row = rows[0]
	case request.Try && (len(columns[at.passed]) == 0 || columns[at.passed][0] != "true"):
		return got, errMissed
	default:
		if n, err := strconv.Atoi(rows[0]); err != nil || n < len(request.Values) {
			return got, locktable.ErrRows
		}
	}
	if at.token > 0 {
		got.Token, err = strconv.ParseInt(columns[at.token][0], 10, 64)
	}
	if at.look > 0 {
		got.Answer = columns[at.look]
	}
	return got, err
}

// join locks rows in a transaction that has more to lose than this lock. A savepoint keeps the
// transaction safe from every error. For work it stays, with another one behind the lock.
func (q querier) join(ctx context.Context, request dialects.Request, at client.Savepoint, work bool) (
	got dialects.Grant, err error,
) {
	on := way{joined: true, fails: always, first: at.Set(), last: at.Release()}
	switch {
	case work: // inside the first savepoint, so that a cancel costs no more than any other
		on.last = at.Inner().Set()
	case request.Try && len(request.Values) == 1 && !q.Blind:
		on.fails = ifPassed
	}
	var failed error
	ran := 0
	got, err = q.lock(ctx, request, on, func(ctx context.Context, s sqltext.Script) ([][]string, error) {
		columns, err := q.Run(ctx, s)
		failed, ran = err, len(columns)
		return columns, err
	})
	if failed == nil { // a try that missed has taken nothing
		return got, err
	}
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	return got, q.undo(clean, at, request, failed, ran, err)
}

// undo undoes a script that began with a savepoint, and has failed behind so many statements. It
// returns what has become of the request.
func (q querier) undo(ctx context.Context, at client.Savepoint, request dialects.Request, failed error, ran int,
	err error,
) error {
	switch state := server.State(failed); {
	case state == server.NoTransaction, server.Broken(failed):
		return dialects.Lost(err)
	case state == server.AbortedBefore, state == "" && ran == 0: // no savepoint is set
		return err
	}
	_, undone := q.Run(ctx, sqltext.Script{at.Undo()}) // alone: behind it pgx may prepare again
	if undone == nil {
		err = q.explain(ctx, request, err)
		_, undone = q.Run(ctx, sqltext.Script{at.Release()})
	}
	if undone != nil {
		return dialects.Lost(fmt.Errorf("%w (%v)", undone, err))
	}
	return err
}

// explain says what an error means of which the server can be asked more.
func (q querier) explain(ctx context.Context, request dialects.Request, err error) error {
	switch state := server.State(err); {
	case (state == server.UndefinedTable || state == server.UndefinedColumn) && request.Fence != "":
		f, _ := fenceOf(request.Fence)
		fenceless := locktable.NoFence(request.Fence, server.Said(err), f.epochs, f.runs, f.sequence, "column server")
		if errors.Is(fenceless, dialects.ErrNotInstalled) {
			return fenceless
		}
		return err
	case state == server.DeadlockDetected:
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Detail != "" { // who waited for whom
			return fmt.Errorf("%w (%s)", err, strings.ReplaceAll(pg.Detail, "\n", " "))
		}
	case errors.Is(err, locktable.ErrRows):
		t, _ := textsOf(request, false, never) // there was no error when the lock was sent
		values, _ := valuesOf(request, t.column)
		exist := "select " + t.column + "::text from " + t.table + t.where
		columns, failed := q.Run(ctx, sqltext.Script{sqltext.With(exist, values)})
		if failed != nil {
			return server.Classify(failed, request)
		}
		return locktable.MissingRows(request, columns[0])
	}
	return q.explainStandby(ctx, err)
}

// explainStandby is failed, unless the server is a standby.
func (q querier) explainStandby(ctx context.Context, failed error) error {
	const readOnly = "25006" // FOR UPDATE
	state := server.State(failed)
	if !errors.Is(failed, dialects.ErrIsolation) && state != readOnly && state != server.NotSupported {
		return failed
	}
	columns, err := q.Run(ctx, sqltext.Script{{SQL: "select coalesce(host(inet_server_addr()) || ':' || " +
		"inet_server_port()::text, 'on a socket of this machine') where pg_is_in_recovery()"}})
	if err != nil || len(columns[0]) == 0 {
		return failed
	}
	return fmt.Errorf("%w: the server %s is a standby, where a lock excludes nobody: connect to the primary, with "+
		"target_session_attrs=read-write say: %w", dialects.ErrUnsafeEngine, columns[0][0], failed)
}
