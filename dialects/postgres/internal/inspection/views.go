package inspection

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/label"
)

// picture is what the server's views show of sessions and their locks, read in one round trip.
//
// PostgreSQL keeps row locks in the rows: xmax is the transaction that locked a row last. No view
// lists a row that is held and not awaited. The turnstile in front of the row is listed: an
// advisory lock, whose number says which row it belongs to.
type picture struct {
	held       []slotOf    // by xmax, unless that is a subtransaction's
	awaited    []slotOf    // by the lock of the row version, which every waiter has or waits for
	turnstiles []turnstile // held and awaited
	rowWaits   []waiter
	sessions   []activity
}

type slotOf struct {
	PID         int    `json:"pid"`
	Transaction string `json:"virtualtransaction"`
	Slot        string `json:"slot"`
	Certain     bool   `json:"certain"` // xmax is a transaction's number, and no multixact's
}

// waiter waits for a row or a turnstile. Blockers are its holder and the waiters in front.
type waiter struct {
	PID         int      `json:"pid"`
	Transaction string   `json:"virtualtransaction"`
	Since       *float64 `json:"since"`
	Blockers    []int    `json:"blockers"`
	shared      bool     // it waits to share
}

// turnstile is an advisory lock that a session has, or waits for.
type turnstile struct {
	waiter
	High    uint32 `json:"high"`
	Low     uint32 `json:"low"`
	Sub     uint16 `json:"sub"`
	Granted bool   `json:"granted"`
	Shared  bool   `json:"shared"`
}

// ofTable tells whether High and Low are the numbers of the lock table and of a slot. Otherwise
// they are the halves of a hash.
func (t turnstile) ofTable() bool { return t.Sub == 2 }

func (t turnstile) hash() int64 { return int64(uint64(t.High)<<32 | uint64(t.Low)) }

// id names the turnstile for endSQL.
func (t turnstile) id() string { return fmt.Sprintf("%d:%d:%d", t.Sub, t.High, t.Low) }

// activity is a session in a transaction. What the role may not see is empty.
type activity struct {
	PID         int      `json:"pid"`
	Transaction string   `json:"virtualtransaction"`
	Application string   `json:"application_name"`
	Host        string   `json:"host"`
	Port        int      `json:"client_port"`
	User        string   `json:"usename"`
	Database    string   `json:"datname"`
	State       string   `json:"state"`
	Query       string   `json:"query"`
	Begun       *float64 `json:"begun"`
	Now         float64  `json:"now"`
}

// Each query returns rows of JSON, because a script returns the first column alone. The server has
// one list of locks for all its databases.
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
		and (objsubid = 1 or classid = ` + sqltext.Literal(quoted) + `::regclass)) s`
}

// heldSQL also returns whom xmax names by chance. Where several sessions share a row it is the
// number of a multixact, and stays that when they have ended: that of one between the table's
// oldest and the newest may be another transaction's too.
func heldSQL(quoted string) string {
	return "select row_to_json(s)::text from (select l.pid, l.virtualtransaction, r.slot::text, " +
		"mxid_age(r.xmax) not between 1 and (select mxid_age(relminmxid) from pg_class where oid = " +
		sqltext.Literal(quoted) + "::regclass) as certain from " + quoted + " r join pg_locks l " +
		"on l.locktype = 'transactionid' and l.granted and l.transactionid = r.xmax where r.xmax <> '0'::xid) s"
}

func awaitedSQL(quoted string) string {
	return "select row_to_json(s)::text from (select l.pid, l.virtualtransaction, r.slot::text " +
		"from pg_locks l join " + quoted + " r on r.ctid = ('(' || l.page || ',' || l.tuple || ')')::tid " +
		"where l.locktype = 'tuple' and l." + sqltext.InThisDatabase +
		" and l.relation = " + sqltext.Literal(quoted) + "::regclass) s"
}

// look makes a picture. It makes another when a lock was renewed meanwhile.
func (run Run) look(ctx context.Context, table string) (p picture, err error) {
	for range 3 {
		if p, err = run.read(ctx, table); err != nil || !p.forgetEnded() {
			break
		}
	}
	return p, err
}

// read reads the views. Sessions come last: one that has ended since has no lock that matters.
func (run Run) read(ctx context.Context, table string) (p picture, err error) {
	quoted, err := sqltext.QuoteTable(table)
	if err != nil {
		return p, err
	}
	columns, err := run(ctx, sqltext.Script{
		{SQL: heldSQL(quoted)},
		{SQL: awaitedSQL(quoted)},
		{SQL: turnstilesSQL(quoted)},
		{SQL: rowWaitsSQL},
		{SQL: sessionsSQL},
	})
	if err != nil {
		return p, err
	}
	for i, into := range []any{&p.held, &p.awaited, &p.turnstiles, &p.rowWaits, &p.sessions} {
		if err := readJSON(columns[i], into); err != nil {
			return p, err
		}
	}
	return p, nil
}

func readJSON(column []string, into any) error {
	if err := json.Unmarshal([]byte("["+strings.Join(column, ",")+"]"), into); err != nil {
		return fmt.Errorf("read the server's views: %w", err)
	}
	return nil
}

// forgetEnded drops what transactions held or awaited that have ended since. Their sessions may be
// in others by now. Renewed says that one of them has renewed its locks meanwhile, and still holds
// them.
func (p *picture) forgetEnded() (renewed bool) {
	now := make(map[string]bool, len(p.sessions))
	for _, s := range p.sessions {
		now[s.Transaction] = true
	}
	for _, t := range p.turnstiles {
		if s := p.session(t.PID); t.Granted && !now[t.Transaction] && s != nil {
			_, _, claims := label.Read(s.Application)
			renewed = renewed || len(claims) > 0 && !claims[0].At.IsZero()
		}
	}
	p.held = slices.DeleteFunc(p.held, func(s slotOf) bool { return !now[s.Transaction] })
	p.awaited = slices.DeleteFunc(p.awaited, func(s slotOf) bool { return !now[s.Transaction] })
	p.turnstiles = slices.DeleteFunc(p.turnstiles, func(t turnstile) bool { return !now[t.Transaction] })
	p.rowWaits = slices.DeleteFunc(p.rowWaits, func(w waiter) bool { return !now[w.Transaction] })
	return renewed
}
