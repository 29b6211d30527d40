package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/label"
)

// A session that has locked a row has a transaction number, and VACUUM keeps all rows that were
// deleted since. So a lock that is held for long is renewed: the session ends its transaction and
// locks the same rows in a new one, in one round trip, and nobody gets in between. All that it
// holds are rows of our own: others may lock those of a caller's table without us.
//
// That rests on the queue locks. Whoever wants one of the rows passes its queue lock first. The
// session keeps those for itself, apart from any transaction, from before the end of the one until
// it has the rows in the other. Nobody waits at the rows then: who does has passed a queue lock. So
// the rows are locked at once, and no other session can have seen them free.
//
// A renewal waits for nobody, whoever waits for its queue locks. Each is asked for in the form in
// which the session has it: by its transaction first, by itself then. The server counts such a
// request up in the memory of the process, and never comes to the table in which locks conflict
// (LockAcquireExtended). The requests are tries all the same: where one ever had to wait, the
// renewal would fail at once.
type renewal struct {
	locked []dialects.Request
	every  time.Duration
	next   time.Time
	barred bool // it is not renewed
	needed bool // the transaction has a number, or may have one: a token takes one now and then
}

// renewAtLeast is how often a held lock is renewed. With a short lease it is once in two of them.
const (
	renewAtLeast  = time.Minute
	leasesToRenew = 2
)

// note says what the session has locked.
func (r *renewal) note(request dialects.Request, got dialects.Grant) {
	if got.Row != "" {
		request.Values = []dialects.Value{{Text: got.Row}}
	}
	if r.barred = r.barred || request.Work != nil || !request.Ours; r.barred {
		return
	}
	r.locked = append(r.locked, request)
	r.needed = r.needed || rowLock(request) != "" || request.Fence != ""
	if r.every == 0 {
		r.every = min(renewAtLeast, leasesToRenew*request.Lease)
		r.plan()
	}
}

// plan chooses when the next renewal is due: at a random time, because all sessions of a Locker
// have their heartbeats in one moment. Those that began together, or were stopped together, are
// renewed a few at a time.
func (r *renewal) plan() { r.next = time.Now().Add(r.every/2 + rand.N(r.every/2)) }

func (r *renewal) due() bool { return r.needed && !r.barred && !time.Now().Before(r.next) }

// renew is one simple query, so that a pooler in transaction mode, which sees no end of a
// transaction in between, leaves the server's session to this connection. After an error the
// session still has the queue locks, so nobody gets in before the owner knows of the loss, when the
// connection is closed. That is what the savepoints are for: without them a statement that fails
// would end the transaction, and with it what the session does not keep for itself yet, or no
// longer.
func (s *session[Tx]) renew(ctx context.Context) error {
	s.renewing = true // unless all goes well, also when the client library panics: see rollback
	const savepoint = "savepoint txlock_renew"
	columns, err := s.Line.Run(ctx, sqltext.Script{
		{SQL: savepoint, Silent: true, Opens: true},
		{SQL: "select concat(extract(epoch from now()), ' ', " + nameSQL + ")"},
		sqltext.Silent("release " + savepoint),
	})
	if server.State(err) == server.QueryCanceled { // nothing is kept yet: the next heartbeat tries again
		if s.Line.Exec(ctx, "rollback to "+savepoint+"; release "+savepoint) == nil {
			s.renewing = false
			return nil
		}
	}
	if err == nil {
		since, name, _ := strings.Cut(columns[1][0], " ")
		begun, _ := strconv.ParseFloat(since, 64)
		r, unkeep := s.renewal.locked, queueLocksSQL(s.renewal.locked, sqltext.Unkeeping)
		lock := append([]string{"rollback and chain"}, relockSQL(r, s.lease, label.Since(name, begun))...)
		lock = append(lock, savepoint, unkeep, "release "+savepoint)
		keep := []string{sqltext.Ping + "\n" + savepoint, queueLocksSQL(r, sqltext.Keeping)}
		err = s.Line.Exec(ctx, strings.Join(append(keep, lock...), "; "))
		// Somebody's cancel. Behind one of the savepoints the transaction has the rows, so what the
		// session keeps is given up. In between the transaction is aborted: if the session keeps
		// the queue locks, the rows are locked again as if nothing had happened, else the cancel
		// came before the first savepoint, and the lock is lost.
		for tries := 0; server.State(err) == server.QueryCanceled && tries < cancelsWithstood; tries++ {
			err = s.Line.Exec(ctx, "rollback to "+savepoint+"; "+unkeep+"; release "+savepoint)
			if server.State(err) == server.UnknownSavepoint {
				err = s.Line.Exec(ctx, strings.Join(slices.Insert(slices.Clone(lock), 1, keptSQL(r)), "; "))
			}
		}
	}
	if err != nil {
		return fmt.Errorf("the renewal of the lock failed: %w", err)
	}
	s.renewing = false // the last statements gave up what the session kept
	s.renewal.plan()
	return nil
}

// cancelsWithstood is how many cancels one renewal takes, each of which hits what the one before
// has made necessary.
const cancelsWithstood = 10

// keptSQL fails by a division by zero unless the session keeps all queue locks for itself. The
// transaction must have none.
func keptSQL(locked []dialects.Request) string {
	return each(locked, func(request dialects.Request) string {
		numbers := queueLocks(request)
		return "select 1 / (count(distinct objid) = " + strconv.Itoa(len(numbers)) + ")::int from pg_locks where " +
			"locktype = 'advisory' and granted and pid = pg_backend_pid() and objsubid = 2 and classid = " +
			sqltext.NumberOf(request.Table) + "::oid and objid in (select n::oid from unnest(" +
			sqltext.Literal(sqltext.ArrayOf(numbers)) + "::int[]) n)"
	})
}

func each(locked []dialects.Request, sql func(dialects.Request) string) string {
	var statements []string
	for _, request := range locked {
		if one := sql(request); one != "" {
			statements = append(statements, one)
		}
	}
	return strings.Join(statements, "; ")
}

// queueLocksSQL calls function for the queue locks. It fails by a division by zero when one is not
// granted. What is given up may have been given up before, by a statement that was cancelled then.
func queueLocksSQL(locked []dialects.Request, function string) string {
	return each(locked, func(request dialects.Request) string {
		all := "bool_and(" + sqltext.Pass(request, function, "n") + ")"
		if function != sqltext.Unkeeping {
			all = "1 / (" + all + ")::int"
		}
		return "select " + all + " from unnest(" + sqltext.Literal(sqltext.ArrayOf(queueLocks(request))) + "::int[]) n"
	})
}

// relockSQL locks in a new transaction what was locked in the last. A row that is missing is a
// division by zero. One that somebody has got who passes no queue locks is an error too. Either is
// the end of the session.
func relockSQL(locked []dialects.Request, lease time.Duration, shown string) []string {
	calls := []string{
		"select " + sqltext.Set("application_name", sqltext.Escaped(shown)) + ", " +
			client.LeaseSQL(sqltext.Literal(sqltext.Milliseconds(lease))),
		queueLocksSQL(locked, sqltext.Trying),
	}
	rows := each(locked, func(request dialects.Request) string {
		mode := rowLock(request)
		t, err := textsOf(request, false, never)
		if mode == "" || err != nil { // it has been locked by the same text
			return ""
		}
		values, _ := valuesOf(request, t.column)
		return "select 1 / (count(*) = " + strconv.Itoa(len(request.Values)) + ")::int from (select from " + t.table +
			strings.ReplaceAll(t.where, "$1", sqltext.Literal(values)) + " order by " + t.column + mode +
			" nowait) locked"
	})
	if rows == "" {
		return calls
	}
	return append(calls, rows)
}
