package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/internal/identifier"
	"github.com/txlock/txlock/internal/label"
)

// Inspect implements dialects.Inspector. It shows all rows, whichever are asked for.
func (d *driver[Tx]) Inspect(ctx context.Context, of dialects.Inspection) (_ []dialects.Entry, err error) {
	slots, _ := server.QuoteTable(of.Table.Name) // of which the server has told the name
	var rows []string
	if permits, leaders := of.Table.Kinds.Permits.Table, of.Table.Kinds.Leaders.Table; !of.Brief {
		// An older version has no such table, or its roles may not read it. That is asked first,
		// because the server would log an error.
		const readable = "select rows from (values ($1::text, $2::text), ($3::text, $4::text)) tables (name, rows) " +
			"where has_table_privilege(to_regclass(name), 'select')"
		rows, err = d.Run(ctx, dialects.Query{SQL: identifier.Qualified(readable), Table: of.Table.Name, Args: []any{
			permits, rowsOf(permits, "'semaphore', hash, name, permit", "true"),
			leaders, rowsOf(leaders, "'election', hash, name, 0", "part = 'seat'"),
		}})
	}
	if err != nil {
		return nil, err
	}
	picture := identifier.Qualified(pictureSQL(strings.Join(rows, "")))
	lines, err := d.Run(ctx, dialects.Query{SQL: picture, Args: []any{slots}, Table: of.Table.Name})
	if err != nil {
		return nil, err
	}
	return entries(lines, of.Table.Slots)
}

func (d *driver[Tx]) End(ctx context.Context, party dialects.Party) error {
	h := strings.SplitN(party.Transaction, " ", 3)
	if len(h) < 3 {
		return dialects.ErrChanged
	}
	ended, err := d.Run(ctx, dialects.Query{SQL: endSQL, Args: []any{party.ID, h[0], h[1], h[2]}})
	switch {
	case server.State(err) == server.NoPrivilege:
		return fmt.Errorf("only the session's own role, and members of pg_signal_backend, may end it (GRANT "+
			"pg_signal_backend TO …): %w", err)
	case err != nil:
		return err
	case len(ended) == 0:
		return dialects.ErrChanged
	case ended[0] != "true":
		return fmt.Errorf("session %s was told to end, and had not done so after 5 s", party.ID)
	}
	return nil
}

// rowsOf adds rows of a table, on a condition.
func rowsOf(table, columns, where string) string {
	name := server.Literal(table)
	return " union all select " + name + "::regclass::oid, " + name + ", id, " + columns + " from " + table +
		" where " + where
}

// pictureSQL reads the sessions in a transaction, and the prepared ones, with each advisory lock
// that they have or wait for, in the order of the queues. $1 is the lock table.
//
// No view lists a row lock that is held and not awaited. The queue lock in front of the row is
// listed: an advisory lock, whose number says which row it belongs to. All come from one reading of
// pg_locks: a session that takes one after the other never shows with both. The clock is read once:
// else a waiter could seem to wait longer than the one in front. Lines are JSON, because a query
// returns one column.
func pictureSQL(rows string) string {
	return `with locks as materialized (select * from pg_locks),
	rows as (select null::oid as class, '' as quoted, 0 as id, '' as kind, '' as hash, '' as name, 0 as permit
		where false` + rows + `),
	sessions as (
		select a.*, v.virtualtransaction, w.pid is not null as awaits, w.waitstart,
			case when w.pid is not null then pg_blocking_pids(a.pid) end as blockers
		from pg_stat_activity a
		join locks v on v.pid = a.pid and v.locktype = 'virtualxid' and v.virtualxid = v.virtualtransaction
		left join locks w on w.pid = a.pid and not w.granted and w.locktype in ('transactionid', 'tuple')
		where a.pid <> pg_backend_pid()),
	prepared as (
		select x.*, t.virtualtransaction from pg_prepared_xacts x
		join locks t on t.locktype = 'transactionid' and t.transactionid = x.transaction and t.pid is null),
	queue_locks as (
		select *, objid::int as low, concat_ws(':', objsubid, classid, objid) as name,
			case when objsubid = 1 then classid::bigint << 32 | objid::bigint end as number
		from locks where locktype = 'advisory' -- the server has one list for all databases
			and database = (select oid from pg_database where datname = current_database()))
select row_to_json(s)::text from (
	select a.pid, a.pid::text as id, a.application_name as application,
		concat(coalesce(l.virtualtransaction, a.virtualtransaction), ' ', l.name, ' ') as transaction,
		coalesce(a.client_hostname, host(a.client_addr)) as host,
		a.client_port as port, coalesce(a.usename, x.owner) as "user", coalesce(a.datname, x.database) as database,
		x.gid as prepared, coalesce(a.xact_start, x.prepared) as since, coalesce(a.state like 'idle%', false) as idle,
		case when a.state is not null then a.query end as statement, a.awaits, a.blockers,
		coalesce(l.waitstart, a.waitstart) as awaiting, (select clock_timestamp()) as now,
		not l.granted as waits, l.mode = 'ShareLock' as shared, l.number, l.low::text as value,
		case when l.objsubid = 2 and l.classid = $1::text::regclass::oid and l.low >= 0 then $1::text
			else r.quoted end as quoted, r.kind, r.hash, r.name, r.permit
	from queue_locks l
	full join sessions a on a.virtualtransaction = l.virtualtransaction
	left join prepared x on x.virtualtransaction = l.virtualtransaction
	left join rows r on l.objsubid = 2 and r.class = l.classid and r.id = l.low
	where a.pid is not null or x.gid is not null
	order by l.granted desc, coalesce(l.waitstart, a.waitstart) nulls last, a.pid) s`
}

// endSQL ends a session that is still in the transaction, or has renewed its locks since then, and
// has the queue lock if it had one. It tells whether the session ended within 5 s.
var endSQL = identifier.Qualified("select pg_terminate_backend(pid, 5000)::text from (select distinct l.pid " +
	"from pg_locks l join pg_stat_activity a on a.pid = l.pid where l.pid::text = $1::text " +
	"and ($3::text = '' or l.locktype = 'advisory' and l.granted " +
	"and concat_ws(':', l.objsubid, l.classid, l.objid) = $3::text) " +
	"and (l.virtualtransaction = $2::text or $4::text <> '' and right(a.application_name, length($4::text)) = " +
	"$4::text)) s")

// line is a session in a transaction, or a prepared one, and an advisory lock that it has or waits
// for: a queue lock.
type line struct {
	dialects.Entry
	PID, Port int
	Quoted    string // the table of the row behind the queue lock; empty: that is not known, or there is none
	Number    int64  // of the queue lock in front of a caller's row
	Awaits    bool   // the session awaits a row, whether or not its holder uses txlock
	Awaiting  time.Time
	Blockers  []int // of the session that awaits a row
	Now       time.Time

	label label.Label
}

// entries puts the picture together.
func entries(texts []string, slots int) (entries []dialects.Entry, err error) {
	var lines []*line
	if err := json.Unmarshal([]byte("["+strings.Join(texts, ",")+"]"), &lines); err != nil {
		return nil, fmt.Errorf("read the server's views: %w", err)
	}
	sessions, callers := map[int]dialects.Party{}, map[int64]dialects.Entry{}
	for _, l := range lines {
		l.read()
		sessions[l.PID] = l.Party
		l.label.Rows(func(table, column, value string) {
			number := queueLock(table, column, value)
			callers[number] = dialects.Entry{Table: table, Column: column, Value: value}
		})
	}
	queueLocks := map[int]int{} // how many each session has or waits for
	for _, l := range lines {
		if row, known := callers[l.Number]; known && l.Number != 0 {
			l.Table, l.Column, l.Value = row.Table, row.Column, row.Value
			l.Quoted, _ = server.QuoteTable(row.Table)
		}
		if l.Quoted != "" {
			queueLocks[l.PID]++
		}
	}
	var strangers []dialects.Entry
	for _, l := range lines {
		if l.Quoted == "" {
			continue
		}
		alone := queueLocks[l.PID] == 1
		if l.Kind == dialects.KindRow && l.Column == "" {
			l.Key = l.label.Key(l.Value, slots, alone)
		}
		if !l.Waits && l.locks() {
			// It has the queue lock, and waits in front of all who wait for that: somebody has the
			// row without. Of several rows, which one it waits for is not known.
			l.Waits = true
			for _, pid := range l.Blockers {
				if party, there := sessions[pid]; there && alone {
					stranger := l.Entry
					stranger.Waits, stranger.Party = false, party
					strangers = append(strangers, stranger)
				}
			}
		}
		if l.Waits {
			l.lasts(l.Awaiting)
		}
		entries = append(entries, l.Entry)
	}
	return append(entries, strangers...), nil
}

// read takes the label apart, and pins the transaction for End: by the queue lock, and by when it
// began, which is what stays when it is renewed.
func (l *line) read() {
	l.label = label.Read(l.Application)
	l.Application, l.Process = l.label.Before, l.label.Process
	if l.Port > 0 {
		l.Host = net.JoinHostPort(l.Host, strconv.Itoa(l.Port))
	}
	if !l.label.Since.IsZero() {
		l.Since = l.label.Since
	}
	l.lasts(l.Since)
	if !l.Since.IsZero() {
		l.Transaction += label.SinceMark(float64(l.Since.UnixMicro()) / 1e6)
	}
}

func (l *line) lasts(since time.Time) {
	if l.Since, l.For = since, 0; !since.IsZero() {
		l.For = max(l.Now.Sub(since), 0)
	}
}

// locks tells whether the session runs the statement that locks the row, and waits for it. Else its
// work may wait for another row.
func (l *line) locks() bool {
	return l.Awaits && (strings.Contains(l.Statement, server.Tag) || // of several, of which the server shows some
		strings.Contains(l.Statement, " from "+l.Quoted+" where ") && strings.Contains(l.Statement, " for "))
}
