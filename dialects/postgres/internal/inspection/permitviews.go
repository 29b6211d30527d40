package inspection

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// permitLock is an advisory lock of a permit, or of the queue.
type permitLock struct {
	turnstile
	Semaphore string `json:"semaphore"`
	Name      string `json:"name"`
	Permit    int    `json:"permit"`
	Queue     bool   `json:"queue"`
}

// permitLocksSQL reads the locks of permits, and of their queues. $1 are semaphores, none for all.
func permitLocksSQL(quoted string) string {
	return `select row_to_json(s)::text from (
	select l.pid, l.virtualtransaction, l.classid::bigint as high, l.objid::bigint as low, l.objsubid as sub,
		l.granted, extract(epoch from l.waitstart) as since, l.objid::int < 0 as queue, p.hash as semaphore, p.name,
		p.permit,
		case when not l.granted then pg_blocking_pids(l.pid) end as blockers
	from pg_locks l join ` + quoted + ` p on p.id = abs(l.objid::int)
	where l.locktype = 'advisory' and l.objsubid = 2 and l.pid is not null
		and l.` + sqltext.InThisDatabase + ` and l.classid = ` + sqltext.Literal(quoted) + `::regclass
		and (cardinality($1::text[]) = 0 or p.hash = any($1::text[]))) s`
}

func (run Run) permits(ctx context.Context, table, quoted string, only []string) ([]dialects.RowState, error) {
	var locks []permitLock
	p, err := run.lookBeside(ctx, quoted, permitLocksSQL(quoted), only, &locks)
	if err != nil {
		return nil, err
	}
	return p.semaphores(table, locks), nil
}

// lookBeside reads locks of a table beside the lock table, and the sessions.
func (run Run) lookBeside(ctx context.Context, quoted, query string, only []string, locks any) (
	p picture, err error,
) {
	// An older version has not installed it, or its roles were granted only what they needed. That
	// is asked for first, because the server would log an error.
	readable, err := run(ctx, sqltext.Script{{SQL: "select coalesce(has_table_privilege(to_regclass(" +
		sqltext.Literal(quoted) + "), 'select'), false)::text"}})
	if err != nil || readable[0][0] != "true" {
		return p, err
	}
	columns, err := run(ctx, sqltext.Script{sqltext.With(query, sqltext.ArrayOf(only)), {SQL: sessionsSQL}})
	if err != nil {
		return p, err
	}
	if err := readJSON(columns[0], locks); err != nil {
		return p, err
	}
	return p, readJSON(columns[1], &p.sessions)
}

// semaphores puts the picture together.
func (p picture) semaphores(table string, locks []permitLock) (states []dialects.RowState) {
	slices.SortFunc(locks, func(a, b permitLock) int {
		return cmp.Or(strings.Compare(a.Semaphore, b.Semaphore), cmp.Compare(a.Permit, b.Permit),
			cmp.Compare(len(a.Blockers), len(b.Blockers)), cmp.Compare(seconds(a.Since), seconds(b.Since)))
	})
	for len(locks) > 0 {
		name := locks[0].Semaphore
		end := slices.IndexFunc(locks, func(l permitLock) bool { return l.Semaphore != name })
		if end < 0 {
			end = len(locks)
		}
		state := p.semaphore(locks[:end])
		state.Kind, state.Table = dialects.KindSemaphore, table
		state.Named = dialects.Named{Hash: name, Name: locks[0].Name}
		if len(state.Permits)+len(state.Waiters) > 0 {
			states = append(states, state)
		}
		locks = locks[end:]
	}
	return states
}

// semaphore leaves out what transactions held or awaited that have ended since. The head of the
// queue waits first: it has the lock of the queue, or waits for a permit.
func (p picture) semaphore(locks []permitLock) (state dialects.RowState) {
	locks = slices.DeleteFunc(slices.Clone(locks), func(l permitLock) bool {
		a := p.session(l.PID)
		return a == nil || a.Transaction != l.Transaction
	})
	waits := map[int]bool{}
	for _, first := range []bool{true, false} {
		for _, l := range locks {
			head := l.Queue && l.Granted || !l.Queue && !l.Granted
			behind := l.Queue && !l.Granted
			if waits[l.PID] || first && !head || !first && !behind {
				continue
			}
			waits[l.PID] = true
			party := p.party(l.PID)
			if behind {
				party.Since, party.For = span(l.Since, p.session(l.PID).Now)
			}
			state.Waiters = append(state.Waiters, *party)
		}
	}
	for _, l := range locks {
		if !l.Queue && l.Granted {
			party := p.party(l.PID)
			party.Permit = l.Permit
			h := held{transaction: l.Transaction, turnstile: l.id(), granted: firstGrant(*p.session(l.PID))}
			party.Transaction = h.String()
			state.Permits = append(state.Permits, *party)
		}
	}
	return state
}
