package inspection

import (
	"context"
	"slices"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// seatLock is the turnstile in front of a seat, that a session has or waits for.
type seatLock struct {
	turnstile
	Election string `json:"election"`
	Name     string `json:"name"`
	Seat     string `json:"seat"`
}

// seatLocksSQL reads them. $1 are elections, none for all.
func seatLocksSQL(quoted string) string {
	return `select row_to_json(s)::text from (
	select l.pid, l.virtualtransaction, l.classid::bigint as high, l.objid::bigint as low, l.objsubid as sub,
		l.granted, extract(epoch from l.waitstart) as since, p.hash as election, p.name, p.id::text as seat,
		case when not l.granted then pg_blocking_pids(l.pid) end as blockers
	from pg_locks l join ` + quoted + ` p on p.id = l.objid::int and p.part = 'seat'
	where l.locktype = 'advisory' and l.objsubid = 2 and l.pid is not null
		and l.` + sqltext.InThisDatabase + ` and l.classid = ` + sqltext.Literal(quoted) + `::regclass
		and (cardinality($1::text[]) = 0 or p.hash = any($1::text[]))) s`
}

func (run Run) elections(ctx context.Context, leaders string, only []string) (
	states []dialects.RowState, err error,
) {
	var locks []seatLock
	p, err := run.lookBeside(ctx, leaders, seatLocksSQL(leaders), only, &locks)
	if err != nil {
		return nil, err
	}
	byElection := map[string][]seatLock{}
	for _, l := range locks {
		if a := p.session(l.PID); a != nil && a.Transaction == l.Transaction { // else that has ended since
			byElection[l.Election] = append(byElection[l.Election], l)
		}
	}
	for election, locks := range byElection {
		q := &queue{}
		for _, l := range locks {
			if l.Granted {
				q.turnstileHolder, q.turnstile = l.PID, l.id()
			} else {
				q.waiting = append(q.waiting, l.waiter)
			}
		}
		state := p.state(rowName{leaders, "id", locks[0].Seat}, q)
		state.Kind, state.Named = dialects.KindElection, dialects.Named{Hash: election, Name: locks[0].Name}
		states = append(states, state)
	}
	slices.SortFunc(states, func(a, b dialects.RowState) int { return strings.Compare(a.Named.Hash, b.Named.Hash) })
	return states, nil
}
