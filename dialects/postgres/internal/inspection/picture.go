package inspection

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/label"
)

// picture is what the server's views show of sessions and their locks, read in one round trip.
type picture struct {
	slots    int
	tables   []ours
	sessions map[int]*session
	locks    map[int]int // how many turnstiles each session has or waits for
}

// session is one in a transaction. What the role may not see is empty.
type session struct {
	dialects.Party
	PID      int
	Port     int
	Begun    *float64
	Awaits   bool // a row that another has locked, whether or not that one uses txlock
	Awaiting *float64
	Blockers []int
	Now      float64

	label label.Label
}

// lock is an advisory lock that a transaction has, or waits for.
type lock struct {
	dialects.Party // of a prepared transaction
	PID            int
	Transaction    string
	Granted        bool
	Shared         bool
	Since          *float64 // of a wait; or when the transaction was prepared
	Now            float64
	High, Low      uint32 // the numbers of a table and of one of its rows, or the halves of a hash
	Sub            uint16

	Hash, Name string // of the semaphore or the election
	Permit     int
}

// row is what is held, as its user spells it, and its table.
type row struct{ quoted, table, column, value string }

// queue is what a picture shows of a row.
type queue struct {
	dialects.RowState
	passed, waiting []lock // at the turnstile
}

func decode(column []string, into any) error {
	if err := json.Unmarshal([]byte("["+strings.Join(column, ",")+"]"), into); err != nil {
		return fmt.Errorf("read the server's views: %w", err)
	}
	return nil
}

// states puts the picture together, from the columns of each of the tables, of callers' rows and of
// sessions.
func (p *picture) states(columns [][]string) (states []dialects.RowState, err error) {
	callers, err := p.meet(columns[len(columns)-1])
	if err != nil {
		return nil, err
	}
	queues := map[row]*queue{}
	for n, column := range columns[:len(columns)-1] {
		var locks []lock
		if err := decode(column, &locks); err != nil {
			return nil, err
		}
		slices.SortFunc(locks, inOrder)
		for _, l := range locks {
			of, known := callers[int64(uint64(l.High)<<32|uint64(l.Low))]
			state := dialects.RowState{Table: of.table, Column: of.column, Value: of.value}
			if n < len(p.tables) {
				number := strconv.Itoa(int(int32(l.Low)))
				of, known = row{quoted: p.tables[n].quoted, value: number}, true
				named := dialects.Named{Kind: p.tables[n].kind, Hash: l.Hash, Name: l.Name}
				state = dialects.RowState{Named: named, Permit: l.Permit, Value: number}
			}
			if !known || l.Prepared == "" && !p.sessions[l.PID].in(l) {
				continue
			}
			if queues[of] == nil {
				queues[of] = &queue{RowState: state}
			}
			if p.locks[l.PID]++; l.Granted {
				queues[of].passed = append(queues[of].passed, l)
			} else {
				queues[of].waiting = append(queues[of].waiting, l)
			}
		}
	}
	for of, q := range queues {
		p.fill(of, q)
		states = append(states, q.RowState)
	}
	return states, nil
}

// meet reads the sessions, and the rows of callers' tables that they show, by the numbers of their
// turnstiles.
func (p *picture) meet(column []string) (callers map[int64]row, err error) {
	var sessions []*session
	err = decode(column, &sessions)
	p.sessions, p.locks, callers = map[int]*session{}, map[int]int{}, map[int64]row{}
	for _, s := range sessions {
		s.label = label.Read(s.Application)
		s.Application, s.Process = s.label.Before, s.label.Process
		if s.Port > 0 {
			s.Host = net.JoinHostPort(s.Host, strconv.Itoa(s.Port))
		}
		p.sessions[s.PID] = s
		s.label.Rows(func(table, column, value string) {
			quoted, _ := sqltext.QuoteTable(table)
			callers[sqltext.Turnstile(table, column, value)] = row{quoted, table, column, value}
		})
	}
	return callers, err
}

// in says whether the session is still in the transaction in which it has the lock, or has renewed
// that.
func (s *session) in(l lock) bool {
	return s != nil && (s.Transaction == l.Transaction || l.Granted && !s.label.Since.IsZero())
}

// fill says who holds a row, who shares it and who waits. Who has passed the turnstile has the row,
// or waits for it in front of those at the turnstile, because somebody has it who did not pass.
func (p *picture) fill(of row, q *queue) {
	var first []lock
	for _, l := range q.passed {
		s := p.sessions[l.PID]
		switch {
		case l.Prepared != "":
			l.Party.Since, l.For = times(l.Since, l.Now)
			q.hold(l.Party, l.Shared)
		case s.locks(of.quoted):
			l.Since = s.Awaiting
			first = append(first, l)
		default:
			holder := s.holder(fmt.Sprintf("%d:%d:%d", l.Sub, l.High, l.Low))
			holder.Key = p.key(q, s)
			q.hold(holder, l.Shared)
		}
	}
	for _, l := range first {
		for _, pid := range p.sessions[l.PID].Blockers {
			passed := slices.ContainsFunc(q.passed, func(l lock) bool { return l.PID == pid })
			// Of several rows, which one it waits for is not known.
			if s := p.sessions[pid]; s != nil && !passed && p.locks[l.PID] == 1 {
				q.hold(s.holder(""), false)
			}
		}
	}
	for _, l := range append(first, q.waiting...) {
		s := p.sessions[l.PID]
		waiter := s.Party
		waiter.Since, waiter.For = times(l.Since, s.Now)
		waiter.Shared, waiter.Key = l.Shared, p.key(q, s)
		q.Waiters = append(q.Waiters, waiter)
	}
}

func (q *queue) hold(party dialects.Party, shared bool) {
	if party.Shared = shared; shared {
		q.Readers = append(q.Readers, party)
	} else if q.Holder == nil {
		q.Holder = &party
	}
}

// locks tells whether the session runs the statement that locks rows of a table, and waits for one.
// Else its work may wait for another row.
func (s *session) locks(quoted string) bool {
	return s.Awaits && (strings.Contains(s.Statement, sqltext.Tag) || // of several, of which the server shows some
		strings.Contains(s.Statement, " from "+quoted+" where ") && strings.Contains(s.Statement, " for "))
}

// holder is the session as one that holds, pinned for End: by the turnstile too, if it passed that.
func (s *session) holder(turnstile string) dialects.Party {
	since, mark, party := s.Begun, "", s.Party
	if !s.label.Since.IsZero() {
		renewed := float64(s.label.Since.UnixMicro()) / 1e6
		since = &renewed
	}
	if since != nil {
		mark = label.SinceMark(*since)
	}
	party.Transaction += " " + turnstile + " " + mark
	party.Since, party.For = times(since, s.Now)
	return party
}

func (p *picture) key(q *queue, s *session) string {
	if q.Kind != dialects.KindRow || q.Column != "" {
		return ""
	}
	return s.label.Key(q.Value, p.slots, p.locks[s.PID] == 1)
}

func times(since *float64, now float64) (time.Time, time.Duration) {
	if since == nil {
		return time.Time{}, 0
	}
	return time.UnixMicro(int64(*since * 1e6)), max(time.Duration((now-*since)*float64(time.Second)), 0)
}

// inOrder has those first who came first. One that has only just begun to wait shows no time.
func inOrder(a, b lock) int {
	since := func(l lock) float64 {
		if l.Since == nil {
			return math.Inf(1)
		}
		return *l.Since
	}
	return cmp.Or(cmp.Compare(since(a), since(b)), cmp.Compare(a.PID, b.PID))
}
