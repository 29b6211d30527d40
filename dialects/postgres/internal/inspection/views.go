package inspection

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/label"
	"github.com/txlock/txlock/internal/locktable"
)

// picture is what the server's views show of sessions and their locks, read in one round trip.
//
// PostgreSQL keeps row locks in the rows: xmax is the transaction that locked a row last. No view
// lists a row that is held and not awaited. The turnstile in front of the row is listed: an
// advisory lock, whose number says which row it belongs to.
type picture struct {
	held       []lock // on slots, by xmax, unless that is a subtransaction's
	awaited    []lock // on slots, by the lock of the row version, which every waiter has or waits for
	turnstiles []lock // held and awaited; of a kind beside the lock table, all its advisory locks
	rowWaits   []lock
	sessions   map[int]*session
}

// lock is what a session has, or waits for.
type lock struct {
	PID         int
	Transaction string `json:"virtualtransaction"`
	Granted     bool
	Shared      bool
	Since       *float64 // of a wait
	Blockers    []int    // of a wait: the holder, and the waiters in front

	Slot    int  `json:",string"`
	Certain bool // xmax is a transaction's number, and no multixact's

	// The numbers of an advisory lock: those of a table and of one of its rows, or the halves of a
	// hash.
	High, Low uint32
	Sub       uint16

	Hash, Name string // of a semaphore, or of an election
	Permit     int
	Queue      bool   // it is the lock of the semaphore's queue, and of no permit
	Seat       string // the election's row
}

// ofTable tells whether High and Low are the numbers of a table and of a row.
func (l lock) ofTable() bool { return l.Sub == 2 }

func (l lock) row() int { return int(int32(l.Low)) }

func (l lock) hash() int64 { return int64(uint64(l.High)<<32 | uint64(l.Low)) }

// id names an advisory lock for endSQL.
func (l lock) id() string { return fmt.Sprintf("%d:%d:%d", l.Sub, l.High, l.Low) }

// session is one in a transaction. What the role may not see is empty.
type session struct {
	PID         int
	Transaction string `json:"virtualtransaction"`
	Application string `json:"application_name"` // without the label
	Host        string
	Port        int    `json:"client_port"`
	User        string `json:"usename"`
	Database    string `json:"datname"`
	State       string
	Query       string
	Begun       *float64
	Now         float64

	process int // of the label
	shown   []dialects.Shown
}

// Each query returns rows of JSON, because a script returns the first column alone.
const (
	rowWaitsSQL = `select row_to_json(s)::text from (
	select pid, virtualtransaction, extract(epoch from waitstart) as since, pg_blocking_pids(pid) as blockers
	from pg_locks w where not granted and locktype in ('transactionid', 'tuple')
		and exists (select from pg_locks t where t.pid = w.pid and t.locktype = 'tuple'
			and t.` + sqltext.InThisDatabase + `)) s`

	// The clock is read once, in a subquery: with a time for each row, a waiter could seem to wait
	// longer than the one in front.
	sessionsSQL = `select row_to_json(s)::text from (
	select a.pid, v.virtualtransaction, application_name, coalesce(client_hostname, host(client_addr)) as host,
		client_port, usename, datname, state, query, extract(epoch from xact_start) as begun,
		(select extract(epoch from clock_timestamp())) as now
	from pg_stat_activity a join pg_locks v on v.pid = a.pid and v.locktype = 'virtualxid'
		and v.virtualxid = v.virtualtransaction
	where a.pid <> pg_backend_pid()) s`
)

// turnstilesSQL leaves out what others use advisory locks with two numbers for.
func turnstilesSQL(quoted string) string {
	return `select row_to_json(s)::text from (
	select pid, virtualtransaction, classid::bigint as high, objid::bigint as low, objsubid as sub, granted,
		mode = 'ShareLock' as shared, extract(epoch from waitstart) as since,
		case when not granted then pg_blocking_pids(pid) end as blockers
	from pg_locks where locktype = 'advisory' and pid is not null and ` + sqltext.InThisDatabase + `
		and (objsubid = 1 or classid = ` + sqltext.Literal(quoted) + `::regclass::oid)) s`
}

// heldSQL also returns whom xmax names by chance. Where several sessions share a row it is the
// number of a multixact, and stays that when they have ended: that of one between the table's
// oldest and the newest may be another transaction's too.
func heldSQL(quoted string) string {
	return "select row_to_json(s)::text from (select l.pid, l.virtualtransaction, r.slot::text, " +
		"mxid_age(r.xmax) not between 1 and (select mxid_age(relminmxid) from pg_class where oid = " +
		sqltext.Literal(quoted) + "::regclass::oid) as certain from " + quoted + " r join pg_locks l " +
		"on l.locktype = 'transactionid' and l.granted and l.transactionid = r.xmax where r.xmax <> '0'::xid) s"
}

func awaitedSQL(quoted string) string {
	return "select row_to_json(s)::text from (select l.pid, l.virtualtransaction, r.slot::text " +
		"from pg_locks l join " + quoted + " r on r.ctid = concat('(', l.page, ',', l.tuple, ')')::tid " +
		"where l.locktype = 'tuple' and l." + sqltext.InThisDatabase +
		" and l.relation = " + sqltext.Literal(quoted) + "::regclass::oid) s"
}

// besideSQL reads the locks of permits and of their queues, or the turnstiles in front of seats. $1
// are the hashes of semaphores or of elections, none for all.
func besideSQL(kind dialects.Kind, quoted string) string {
	columns, joined := "p.permit = "+strconv.Itoa(locktable.QueuePermit)+" as queue, p.permit", "p.id = l.objid::int and l.mode = 'ExclusiveLock'"
	if kind == dialects.KindElection {
		columns, joined = "p.id::text as seat", "p.id = l.objid::int and p.part = 'seat'"
	}
	return `select row_to_json(s)::text from (
	select l.pid, l.virtualtransaction, l.classid::bigint as high, l.objid::bigint as low, l.objsubid as sub,
		l.granted, extract(epoch from l.waitstart) as since, p.hash, p.name, ` + columns + `,
		case when not l.granted then pg_blocking_pids(l.pid) end as blockers
	from pg_locks l join ` + quoted + ` p on ` + joined + `
	where l.locktype = 'advisory' and l.objsubid = 2 and l.pid is not null
		and l.` + sqltext.InThisDatabase + ` and l.classid = ` + sqltext.Literal(quoted) + `::regclass::oid
		and (cardinality($1::text[]) = 0 or p.hash = any($1::text[]))) s`
}

// read reads a list for each query, and the sessions: last, because one that has ended since has no
// lock that matters. It drops what transactions held or awaited that have ended since: their
// sessions may be in others by now. Renewed says that one of them has renewed its locks meanwhile,
// and still holds them.
func (p *picture) read(ctx context.Context, run run, queries sqltext.Script, lists ...*[]lock) (
	renewed bool, err error,
) {
	columns, err := run(ctx, append(queries, sqltext.Statement{SQL: sessionsSQL}))
	if err != nil {
		return false, err
	}
	var sessions []*session
	if err := decode(columns[len(queries)], &sessions); err != nil {
		return false, err
	}
	p.sessions = make(map[int]*session, len(sessions))
	for _, s := range sessions {
		s.Application, s.process, s.shown = label.Read(s.Application)
		s.readPing()
		p.sessions[s.PID] = s
	}
	for i, list := range lists {
		if err := decode(columns[i], list); err != nil {
			return false, err
		}
		*list = slices.DeleteFunc(*list, func(l lock) bool {
			s := p.sessions[l.PID]
			ended := s == nil || s.Transaction != l.Transaction
			renewed = renewed || ended && s != nil && l.Granted && s.hasRenewed()
			return ended
		})
	}
	return renewed, nil
}

func decode(column []string, into any) error {
	if err := json.Unmarshal([]byte("["+strings.Join(column, ",")+"]"), into); err != nil {
		return fmt.Errorf("read the server's views: %w", err)
	}
	return nil
}

// readPing has what the session shows tell what the last heartbeat said, if that came last.
func (s *session) readPing() {
	count, isPing := strings.CutPrefix(s.Query, sqltext.Ping)
	count, _, _ = strings.Cut(count, "\n") // a renewal goes on, or a question
	if behind, err := strconv.ParseUint(count, 10, 31); isPing && err == nil && len(s.shown) > 0 {
		s.shown[0].Behind = int(behind)
	}
}

func (s *session) hasRenewed() bool { return len(s.shown) > 0 && !s.shown[0].At.IsZero() }

// firstGrant is when the session was granted its first lock, as far as it shows that.
func (s *session) firstGrant() float64 {
	switch {
	case s.hasRenewed():
		return float64(s.shown[0].At.UnixMicro()) / 1e6
	case s.Begun == nil:
		return 0
	case len(s.shown) > 0:
		return *s.Begun + s.shown[0].After.Seconds()
	}
	return *s.Begun
}

// locks tells whether the session is running the statement that locks a row of the caller's, and
// whether that is the only row which it says it locks.
func (s *session) locks(r row) (locking, alone bool) {
	named := false
	for _, one := range s.shown {
		if one.Table == r.table && one.Column == r.column && slices.Contains(one.Items, r.value) {
			named, alone = true, len(one.Items) == 1
		}
	}
	table, _ := sqltext.QuoteTable(r.table) // it was locked by that name
	column, _ := sqltext.QuoteColumn(r.column)
	locking = strings.Contains(s.Query, sqltext.SelectFrom(table, column)+" where ") && // maybe inside another
		(strings.Contains(s.Query, sqltext.ForNoKeyUpdate) || strings.Contains(s.Query, sqltext.ForShare))
	// The server cuts a text of 1 kB, and so one of several statements.
	return locking || named && strings.Contains(s.Query, sqltext.Tag), alone
}

// party is the session as one that has waited, or held, since a time.
func (s *session) party(since *float64) dialects.Party {
	party := dialects.Party{
		Session: strconv.Itoa(s.PID), Transaction: s.Transaction, Application: s.Application, Host: s.Host,
		Process: s.process, User: s.User, Database: s.Database, Shown: s.shown,
	}
	if s.Port > 0 {
		party.Host = net.JoinHostPort(s.Host, strconv.Itoa(s.Port))
	}
	if s.State != "" { // the role may see the session
		party.Idle, party.Statement = strings.HasPrefix(s.State, "idle"), s.Query
	}
	if since != nil {
		party.Since = time.UnixMicro(int64(*since * 1e6))
		party.For = max(time.Duration((s.Now-*since)*float64(time.Second)), 0)
	}
	return party
}

// holder is the session as one that holds, pinned for End: by the turnstile too, if it passed that.
func (s *session) holder(turnstile string, passed bool) dialects.Party {
	h := hold{transaction: s.Transaction, granted: s.firstGrant()}
	if passed {
		h.turnstile = turnstile
	}
	party := s.party(s.Begun)
	party.Transaction = h.String()
	return party
}
