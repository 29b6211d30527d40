package inspection

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// mysql lists every row lock, in performance_schema. The privilege to see the locks also shows the
// sessions of all users.
var mysql = views{
	read: readMySQL, grant: "GRANT SELECT ON performance_schema.* TO …",
	present: "SELECT PROCESSLIST_ID FROM performance_schema.threads WHERE PROCESSLIST_ID = ",
}

// peopleSQL reads the sessions of MySQL. TIMER_WAIT, in picoseconds, grows as long as a statement
// or a transaction lasts.
const peopleSQL = `SELECT t.PROCESSLIST_ID, t.PROCESSLIST_USER, t.PROCESSLIST_HOST, t.PROCESSLIST_DB,
	t.PROCESSLIST_COMMAND, t.PROCESSLIST_INFO, s.SQL_TEXT, v.VARIABLE_VALUE, s.TIMER_WAIT, x.TIMER_WAIT,
	(SELECT MAX(a.ATTR_VALUE) FROM performance_schema.session_connect_attrs a
		WHERE a.PROCESSLIST_ID = t.PROCESSLIST_ID AND a.ATTR_NAME = 'program_name'), x.EVENT_ID,
	UNIX_TIMESTAMP(NOW(6))
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
	WHERE h.SQL_TEXT LIKE '%` + sqltext.CommentMark + `%' AND t.PROCESSLIST_ID <> CONNECTION_ID()
	ORDER BY h.EVENT_ID DESC`

func readMySQL(ctx context.Context, p *picture) error {
	people, err := p.ask(ctx, peopleSQL)
	if err != nil {
		return err
	}
	for _, line := range people {
		session, waits := p.meet(line)
		session.Statement, session.Application, session.begin = cmp.Or(line[5], line[6]), line[10], line[11]
		span := line[9] // of the transaction
		if waits {
			span = line[8] // of the statement
		}
		if picoseconds, err := strconv.ParseFloat(span, 64); err == nil {
			session.lasts(line[12], picoseconds/1e12)
		}
		session.hear(line[7])
	}
	history, err := p.ask(ctx, historySQL)
	for _, line := range history {
		if session := p.people[line[0]]; session != nil {
			session.hear(sqltext.LabelIn(line[1]))
		}
	}
	if err != nil {
		return err
	}
	return p.readDataLocks(ctx)
}

const (
	// dataLocksSQL reads locks of rows. It does not ask for their THREAD_ID: the thread that made
	// the entry may be another session's, which split a page, or found a row that its inserter
	// holds without an entry.
	dataLocksSQL = `SELECT l.ENGINE_TRANSACTION_ID, l.OBJECT_SCHEMA, l.OBJECT_NAME, l.INDEX_NAME,
	l.LOCK_STATUS = 'WAITING', l.LOCK_MODE LIKE 'S%', l.LOCK_DATA
	FROM performance_schema.data_locks l
	WHERE l.LOCK_TYPE = 'RECORD' AND l.LOCK_MODE IN ('X', 'X,REC_NOT_GAP', 'S', 'S,REC_NOT_GAP') AND `
	// ownersSQL reads which session a transaction is of. The owner itself makes the lock of the
	// table, which comes before any of its rows.
	ownersSQL = `SELECT DISTINCT l.ENGINE_TRANSACTION_ID, t.PROCESSLIST_ID FROM performance_schema.data_locks l
	JOIN performance_schema.threads t ON t.THREAD_ID = l.THREAD_ID
	WHERE l.LOCK_TYPE = 'TABLE' AND t.PROCESSLIST_ID <> CONNECTION_ID()`
)

// readDataLocks reads the locks of our own tables and, unless some rows are looked for alone, of
// those rows of callers' tables that sessions say they lock: there may be millions of others.
func (p *picture) readDataLocks(ctx context.Context) error {
	var conditions []string
	for _, table := range p.tables {
		conditions = append(conditions,
			"l.INDEX_NAME = '"+primary+"' AND "+table.Is("l.OBJECT_SCHEMA", "l.OBJECT_NAME"))
	}
	// Values as the views print them, number or text, up to the first comma.
	printed := map[sqltext.Table][]string{}
	for row := range p.callers() {
		for _, value := range []string{row.value, "'" + asPrinted.Replace(row.value) + "'"} {
			begin, _, _ := strings.Cut(value, ",")
			if quoted, err := sqltext.Literal(dialects.Value{Text: begin}); err == nil {
				printed[row.Table] = append(printed[row.Table], quoted)
			}
		}
	}
	for table, values := range printed {
		conditions = append(conditions, table.Is("l.OBJECT_SCHEMA", "l.OBJECT_NAME")+
			" AND SUBSTRING_INDEX(l.LOCK_DATA, ',', 1) IN ("+strings.Join(values, ", ")+")")
	}
	var locks [][]string
	for _, condition := range conditions {
		some, err := p.ask(ctx, dataLocksSQL+condition)
		if err != nil {
			return err
		}
		locks = append(locks, some...)
	}
	owners, err := p.ask(ctx, ownersSQL)
	sessions := map[string]string{}
	for _, line := range owners {
		sessions[line[0]] = line[1]
		if session := p.people[line[1]]; session != nil {
			session.pin(line[0])
		}
	}
	for _, line := range locks {
		if session := sessions[line[0]]; session != "" { // else its transaction has ended
			p.add(session, sqltext.Table{Database: line[1], Name: line[2]}, line[3:])
		}
	}
	return err
}
