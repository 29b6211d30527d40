package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/missing"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/installation"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// querier runs scripts on one connection.
type querier struct{ client.Line }

// way is how rows are locked, besides the request.
type way struct {
	joined bool   // in a transaction that has more to lose than this lock: a savepoint guards it
	nest   string // sets a savepoint for work behind the lock, whose end releases both; empty: none
	mark   string // of a transaction of its own, with work; see client.MarkSetting
	behind behind // statements of the caller's
	blind  bool   // the client library shows no answers
}

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
	verdicts = map[string]error{unsuitable: errSnapshot, others: missing.ErrRows, noRun: fencing.ErrNoRun}
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
		if of, is := on.behind.read(columns, len(script), err); is {
			return dialects.Grant{Affected: of.affected}, of.with(running.Err())
		}
	}
	state := server.State(err)
	switch {
	case err == nil:
		return at.read(request, columns)
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
	case request.AnyOne != "" && request.Try: // a permit
		if len(rows) == 0 {
			return got, errMissed
		}
		got.Row = rows[0]
	case request.Try && (len(columns[at.passed]) == 0 || !server.IsTrue(columns[at.passed][0])):
		return got, errMissed
	default:
		if n, err := strconv.Atoi(rows[0]); err != nil || n < len(request.Values) {
			return got, missing.ErrRows
		}
	}
	if at.token > 0 {
		got.Token, err = tokenOf(columns[at.token])
	}
	if at.look > 0 {
		got.Answer = columns[at.look]
	}
	return got, err
}

// join locks rows in a transaction that has more to lose than this lock. A savepoint keeps the
// transaction safe from every error.
func (q querier) join(ctx context.Context, request dialects.Request, on way) (got dialects.Grant, err error) {
	var failed error
	ran := 0
	got, err = q.lock(ctx, request, on, func(ctx context.Context, s sqltext.Script) ([][]string, error) {
		columns, err := q.Run(ctx, s)
		failed, ran = err, len(columns)
		return columns, err
	})
	switch state := server.State(failed); {
	case failed == nil: // a try that missed has taken nothing
		return got, err
	case state == server.NoTransaction, server.Broken(failed):
		return got, dialects.Lost(err)
	case state == server.AbortedBefore, state == "" && ran == 0: // no savepoint is set
		return got, err
	}
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	_, undone := q.Run(clean, sqltext.Script{client.UndoWait}) // alone: behind it pgx may prepare again
	if undone == nil {
		err = q.explain(clean, request, err)
		_, undone = q.Run(clean, sqltext.Script{client.ReleaseWait})
	}
	if undone != nil {
		return got, dialects.Lost(fmt.Errorf("%w (%v)", undone, err))
	}
	return got, err
}

// explain says what an error means of which the server can be asked more.
func (q querier) explain(ctx context.Context, request dialects.Request, err error) error {
	switch state := server.State(err); {
	case (state == server.UndefinedTable || state == server.UndefinedColumn) && request.Fence != "":
		return installation.ExplainFence(ctx, q.Line, request.Fence, err)
	case state == server.DeadlockDetected:
		if detail := server.Detail(err); detail != "" { // who waited for whom
			return fmt.Errorf("%w (%s)", err, strings.ReplaceAll(detail, "\n", " "))
		}
	case errors.Is(err, missing.ErrRows):
		t, values, failed := textsOf(request, way{})
		if failed != nil {
			return failed
		}
		exist := "select " + t.column + "::text from " + t.table + t.where
		columns, failed := q.Run(ctx, sqltext.Script{sqltext.With(exist, values)})
		if failed != nil {
			return server.Classify(failed, request)
		}
		return missing.Rows(request, columns[0])
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
