package inspection

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/label"
)

// ours is a table of txlock's.
type ours struct {
	kind   dialects.Kind
	quoted string
}

// lock is an advisory lock that a transaction has, or waits for.
type lock struct {
	PID         int // 0: of a prepared transaction
	Transaction string
	Granted     bool
	Shared      bool
	Since       *float64 // of a wait; or when the transaction was prepared
	Prepared    *string  // its name
	Owner       string   // who has prepared it
	High, Low   uint32   // the numbers of a table and of one of its rows, or the halves of a hash
	Sub         uint16
	Now         float64

	Hash, Name string // of the semaphore or the election
	Permit     int
}

func (l lock) hash() int64 { return int64(uint64(l.High)<<32 | uint64(l.Low)) }

// session is one in a transaction. What the role may not see is empty.
type session struct {
	PID         int
	Transaction string
	Application string
	Host        string
	Port        int
	User        string
	Database    string
	State       string
	Query       string
	Begun       *float64
	Awaits      bool     // a row that another has locked, whether or not that one uses txlock
	Since       *float64 // it awaits that
	Blockers    []int
	Now         float64

	label label.Label
}

// Each query returns rows of JSON, because a script returns the first column alone.
//
// PostgreSQL keeps row locks in the rows, and no view lists one that is held and not awaited. The
// turnstile in front of the row is listed: an advisory lock, whose number says which row it belongs
// to. What others use such locks for is left out.
//
// The clock is read once in a query: with a time for each row, a waiter could seem to wait longer
// than the one in front.
const (
	advisorySQL = `l.virtualtransaction as transaction, l.granted, l.mode = 'ShareLock' as shared,
		extract(epoch from coalesce(l.waitstart, x.prepared)) as since, x.gid as prepared, x.owner,
		coalesce(l.pid, 0) as pid, l.classid::bigint as high, l.objid::bigint as low, l.objsubid as sub,
		(select extract(epoch from clock_timestamp())) as now
	from pg_locks l left join pg_prepared_xacts x on l.virtualtransaction = '-1/' || x.transaction::text `
	theseSQL = ` where l.locktype = 'advisory' and l.` + sqltext.InThisDatabase

	// callersSQL are the turnstiles in front of callers' rows.
	callersSQL = "select row_to_json(s)::text from (select " + advisorySQL + theseSQL + " and l.objsubid = 1) s"

	sessionsSQL = `select row_to_json(s)::text from (
	select a.pid, v.virtualtransaction as transaction, application_name as application,
		coalesce(client_hostname, host(client_addr)) as host, client_port as port, usename as "user",
		datname as database, state, query, extract(epoch from xact_start) as begun,
		w.pid is not null as awaits, extract(epoch from w.waitstart) as since,
		case when w.pid is not null then pg_blocking_pids(a.pid) end as blockers,
		(select extract(epoch from clock_timestamp())) as now
	from pg_stat_activity a join pg_locks v on v.pid = a.pid and v.locktype = 'virtualxid'
		and v.virtualxid = v.virtualtransaction
	left join pg_locks w on w.pid = a.pid and not w.granted and w.locktype in ('transactionid', 'tuple')
	where a.pid <> pg_backend_pid()) s`
)

func slotsSQL(quoted string) string {
	return "select row_to_json(s)::text from (select " + advisorySQL + theseSQL + ofTable(quoted) +
		" and l.objid::int >= 0) s"
}

func ofTable(quoted string) string {
	return " and l.objsubid = 2 and l.classid = " + sqltext.Literal(quoted) + "::regclass::oid"
}

// besideSQL reads the turnstiles in front of permits, of the queues of semaphores, or of seats. $1
// are the hashes of those that are asked for; none for all.
func besideSQL(table ours) string {
	column, seats := "p.permit", ""
	if table.kind == dialects.KindElection {
		column, seats = "0 as permit", " and p.part = 'seat'"
	}
	return "select row_to_json(s)::text from (select p.hash, p.name, " + column + ", " + advisorySQL + "join " +
		table.quoted + " p on p.id = l.objid::int" + seats + theseSQL + ofTable(table.quoted) +
		" and (cardinality($1::text[]) = 0 or p.hash = any($1::text[]))) s"
}

func readableSQL(quoted string) sqltext.Statement {
	return sqltext.Statement{SQL: "select coalesce(has_table_privilege(to_regclass(" + sqltext.Literal(quoted) +
		"), 'select'), false)::text"}
}

func decode(column []string, into any) error {
	if err := json.Unmarshal([]byte("["+strings.Join(column, ",")+"]"), into); err != nil {
		return fmt.Errorf("read the server's views: %w", err)
	}
	return nil
}

// in says whether the session is still in the transaction in which it has the lock, or has
// renewed that.
func (s *session) in(l lock) bool {
	return s != nil && (s.Transaction == l.Transaction || l.Granted && !s.label.Since.IsZero())
}

// locks tells whether the session runs the statement that locks rows of a table: it has passed the
// turnstile, and waits for the row, which somebody has who did not. Else its work may wait for
// another row.
func (s *session) locks(quoted string) bool {
	return s.Awaits && (strings.Contains(s.Query, sqltext.Tag) || // of several statements, of which the server shows some
		strings.Contains(s.Query, " from "+quoted+" where ") && strings.Contains(s.Query, " for "))
}

// party is the session as one that has waited, or been in its transaction, since a time.
func (s *session) party(since *float64) dialects.Party {
	party := dialects.Party{
		Session: strconv.Itoa(s.PID), Transaction: s.Transaction, Application: s.label.Before, Host: s.Host,
		Process: s.label.Process, User: s.User, Database: s.Database,
	}
	if s.Port > 0 {
		party.Host = net.JoinHostPort(s.Host, strconv.Itoa(s.Port))
	}
	if s.State != "" { // the role may see the session
		party.Idle, party.Statement = strings.HasPrefix(s.State, "idle"), s.Query
	}
	party.Since, party.For = times(since, s.Now)
	return party
}

// holder is the session as one that holds, pinned for End: by the turnstile too, if it passed that.
func (s *session) holder(turnstile string) dialects.Party {
	since, mark := s.Begun, ""
	if !s.label.Since.IsZero() {
		renewed := float64(s.label.Since.UnixMicro()) / 1e6
		since = &renewed
	}
	party := s.party(since)
	if since != nil {
		mark = label.SinceMark(*since)
	}
	party.Transaction = s.Transaction + " " + turnstile + " " + mark
	return party
}

func times(since *float64, now float64) (time.Time, time.Duration) {
	if since == nil {
		return time.Time{}, 0
	}
	return time.UnixMicro(int64(*since * 1e6)), max(time.Duration((now-*since)*float64(time.Second)), 0)
}
