package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/label"
)

// peopleSQL reads the sessions of MySQL. TIMER_WAIT, in picoseconds, grows as long as a statement
// or a transaction lasts.
const peopleSQL = `SELECT t.PROCESSLIST_ID, t.PROCESSLIST_USER, t.PROCESSLIST_HOST, t.PROCESSLIST_DB,
	t.PROCESSLIST_COMMAND, t.PROCESSLIST_INFO, v.VARIABLE_VALUE, s.SQL_TEXT, s.TIMER_WAIT, x.TIMER_WAIT,
	(SELECT MAX(a.ATTR_VALUE) FROM performance_schema.session_connect_attrs a
		WHERE a.PROCESSLIST_ID = t.PROCESSLIST_ID AND a.ATTR_NAME = '_pid'),
	(SELECT MAX(a.ATTR_VALUE) FROM performance_schema.session_connect_attrs a
		WHERE a.PROCESSLIST_ID = t.PROCESSLIST_ID AND a.ATTR_NAME = 'program_name'), x.EVENT_ID
	FROM performance_schema.threads t
	LEFT JOIN performance_schema.user_variables_by_thread v
		ON v.THREAD_ID = t.THREAD_ID AND v.VARIABLE_NAME = '` + sqltext.Variable + `'
	LEFT JOIN performance_schema.events_statements_current s
		ON s.THREAD_ID = t.THREAD_ID AND s.NESTING_EVENT_LEVEL = 0
	LEFT JOIN performance_schema.events_transactions_current x
		ON x.THREAD_ID = t.THREAD_ID AND x.STATE = 'ACTIVE'
	WHERE t.TYPE = 'FOREGROUND' AND t.PROCESSLIST_ID <> CONNECTION_ID()`

// historySQL reads the locking statements among the last ten of each session. LockTx sets no
// variable.
const historySQL = `SELECT t.PROCESSLIST_ID, h.SQL_TEXT FROM performance_schema.events_statements_history h
	JOIN performance_schema.threads t ON t.THREAD_ID = h.THREAD_ID
	WHERE h.SQL_TEXT LIKE '%` + sqltext.CommentMark + `%' AND t.PROCESSLIST_ID <> CONNECTION_ID() ORDER BY h.EVENT_ID DESC`

// lookAtMySQL reads performance_schema: with rows, also the locks of callers' tables.
func lookAtMySQL(ctx context.Context, conn *sql.Conn, p *picture, rows bool) error {
	people, err := server.Grid(ctx, conn, peopleSQL)
	if err != nil {
		return err
	}
	untold := map[string]bool{} // sessions without the variable
	for _, line := range people {
		p.meet(line)
		untold[line[0]] = line[6] == ""
	}
	history, err := server.Grid(ctx, conn, historySQL)
	if err != nil {
		return err
	}
	for _, line := range history {
		if party := p.people[line[0]]; party != nil && untold[line[0]] { // it may have locked by several statements
			_, process, claims := label.Read(sqltext.LabelIn(line[1]))
			party.Process, party.Claims = cmp.Or(process, party.Process), append(party.Claims, claims...)
		}
	}
	return p.readDataLocks(ctx, conn, rows)
}

const (
	// dataLocksSQL reads locks of rows. It does not ask for their THREAD_ID: the thread that made
	// the entry may be another session's, which split a page, or found a row that its inserter
	// holds without an entry.
	dataLocksSQL = `SELECT l.ENGINE_TRANSACTION_ID, l.LOCK_STATUS = 'WAITING', l.LOCK_MODE LIKE 'S%',
	l.OBJECT_SCHEMA, l.OBJECT_NAME, l.INDEX_NAME, l.LOCK_DATA,
	IF(l.LOCK_STATUS = 'WAITING', (SELECT COUNT(*) FROM performance_schema.data_lock_waits w
		WHERE w.REQUESTING_ENGINE_LOCK_ID = l.ENGINE_LOCK_ID), 0)
	FROM performance_schema.data_locks l
	WHERE l.LOCK_TYPE = 'RECORD' AND l.LOCK_MODE IN ('X', 'X,REC_NOT_GAP', 'S', 'S,REC_NOT_GAP') AND `
	// ownersSQL reads which session a transaction is of. The owner itself makes the lock of the
	// table, which comes before any of its rows.
	ownersSQL = `SELECT DISTINCT l.ENGINE_TRANSACTION_ID, t.PROCESSLIST_ID FROM performance_schema.data_locks l
	JOIN performance_schema.threads t ON t.THREAD_ID = l.THREAD_ID
	WHERE l.LOCK_TYPE = 'TABLE' AND t.PROCESSLIST_ID <> CONNECTION_ID()`
	// maxLocks bounds what is read of a caller's table.
	maxLocks = 100_000
)

func (p *picture) readDataLocks(ctx context.Context, conn *sql.Conn, rows bool) error {
	condition, err := p.slots().Is("l.OBJECT_SCHEMA", "l.OBJECT_NAME")
	if err != nil {
		return err
	}
	locks, err := server.Grid(ctx, conn, dataLocksSQL+"l.INDEX_NAME = '"+primary+"' AND "+condition)
	if err != nil {
		return err
	}
	if rows {
		further, err := p.readRowLocks(ctx, conn)
		if err != nil {
			return err
		}
		locks = append(locks, further...)
	}
	owners, err := server.Grid(ctx, conn, ownersSQL)
	if err != nil {
		return err
	}
	sessions := map[string]string{}
	for _, line := range owners {
		sessions[line[0]] = line[1]
	}
	for _, line := range locks {
		lock := rowLock{
			session: sessions[line[0]], transaction: p.identity(line[0], sessions[line[0]]),
			waiting: line[1] == "1", shared: line[2] == "1",
			table: p.folded(sqltext.Table{Database: line[3], Name: line[4]}), index: line[5], value: recordValue(line[6]),
		}
		lock.party = p.people[lock.session]
		lock.place, _ = strconv.Atoi(line[7])
		p.locks = append(p.locks, lock)
	}
	return p.readIndexes(ctx, conn)
}

// readRowLocks reads the locks of those rows of callers' tables that sessions say they lock: there
// may be millions of others.
func (p *picture) readRowLocks(ctx context.Context, conn *sql.Conn) (locks [][]string, err error) {
	for table, values := range p.tables() {
		condition, err := table.Is("l.OBJECT_SCHEMA", "l.OBJECT_NAME")
		if err != nil {
			return nil, err
		}
		some, err := server.Grid(ctx, conn, fmt.Sprintf("%s%s AND SUBSTRING_INDEX(l.LOCK_DATA, ',', 1) IN (%s) LIMIT %d",
			dataLocksSQL, condition, beginnings(values), maxLocks+1))
		if err != nil {
			return nil, err
		}
		if len(some) > maxLocks {
			return nil, fmt.Errorf("sessions lock or await table %s.%s more than %d times: name the keys to see",
				table.Database, table.Name, maxLocks)
		}
		locks = append(locks, some...)
	}
	return locks, nil
}

// beginnings are the values for an IN list, as the views print them, number or text, up to the
// first comma.
func beginnings(values []string) string {
	list := []string{"NULL"}
	for _, value := range values {
		for _, printed := range []string{value, "'" + strings.ReplaceAll(value, "'", "''") + "'"} {
			begin, _, _ := strings.Cut(printed, ",")
			if text, err := sqltext.Literal(dialects.Value{Text: begin}); err == nil {
				list = append(list, text)
			}
		}
	}
	return strings.Join(list, ", ")
}

// meet takes a line of peopleSQL.
func (p *picture) meet(line []string) {
	party := &dialects.Party{
		Session: line[0], User: line[1], Host: line[2], Database: line[3],
		Idle: line[4] == "Sleep", Application: line[11],
	}
	if party.Statement = line[5]; party.Statement == "" {
		party.Statement = line[7]
	}
	span := line[9] // of the transaction
	shown := sqltext.LabelIn(line[5])
	if _, party.Process, party.Claims = label.Read(shown); shown != "" { // it waits: since its statement began
		span = line[8]
	}
	if picoseconds, err := strconv.ParseFloat(span, 64); err == nil {
		party.For = time.Duration(picoseconds / 1000)
		party.Since = p.since(party.For)
	}
	_, process, claims := label.Read(line[6])
	party.Claims = append(party.Claims, claims...)
	if party.Process = max(party.Process, process); party.Process == 0 {
		party.Process, _ = strconv.Atoi(line[10])
	}
	p.people[party.Session], p.begins[party.Session] = party, line[12]
}

// isInMySQL tells whether the session is still in the transaction that Inspect showed.
func isInMySQL(ctx context.Context, conn *sql.Conn, party dialects.Party) (bool, error) {
	number, event, err := takeApart(party)
	if err != nil {
		return false, err
	}
	if event != "" {
		if same, err := eventIs(ctx, conn, party.Session, event); err != nil || !same {
			return false, err
		}
	}
	found, err := server.Grid(ctx, conn, fmt.Sprintf(`SELECT 1 FROM performance_schema.data_locks l
		JOIN performance_schema.threads t ON t.THREAD_ID = l.THREAD_ID
		WHERE l.LOCK_TYPE = 'TABLE' AND t.PROCESSLIST_ID = %s AND l.ENGINE_TRANSACTION_ID = %s LIMIT 1`,
		party.Session, number))
	return len(found) > 0, err
}
