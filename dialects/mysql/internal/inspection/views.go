package inspection

import "github.com/txlock/txlock/dialects/mysql/internal/sqltext"

// views are the texts by which a server shows sessions and their locks.
type views struct {
	mariadb bool
	// peopleSQL has for each session: its number, user, host, database, command and statement, for
	// how many seconds that and the transaction last, the time, what tells the transaction from
	// others if its number does not, and the name of the application.
	peopleSQL string
	// locksSQL has for each lock of a row: the session, or nothing where the server does not say
	// which, the number of its transaction, the table, in backquotes, the index, whether it is
	// awaited and shared, and the record. On MySQL a condition goes behind it.
	locksSQL string
	// ownersSQL has the session of each transaction, by its number.
	ownersSQL string
}

// saidSQL reads the last statement of each session, in front of txlock's own among its last ten.
const saidSQL = `(SELECT t.PROCESSLIST_ID, s.SQL_TEXT FROM performance_schema.threads t
	JOIN performance_schema.events_statements_current s
		ON s.THREAD_ID = t.THREAD_ID AND s.NESTING_EVENT_LEVEL = 0
	WHERE t.TYPE = 'FOREGROUND') UNION ALL (
	SELECT t.PROCESSLIST_ID, h.SQL_TEXT FROM performance_schema.events_statements_history h
	JOIN performance_schema.threads t ON t.THREAD_ID = h.THREAD_ID
	WHERE h.SQL_TEXT LIKE '%` + sqltext.CommentMark + `%')`

// mysql lists every row lock, in performance_schema. The privilege to see the locks also shows the
// sessions of all users. TIMER_WAIT, in picoseconds, grows until a statement or transaction ends.
var mysql = views{
	peopleSQL: `SELECT t.PROCESSLIST_ID, t.PROCESSLIST_USER, t.PROCESSLIST_HOST, t.PROCESSLIST_DB,
		t.PROCESSLIST_COMMAND, t.PROCESSLIST_INFO, s.TIMER_WAIT / 1e12, x.TIMER_WAIT / 1e12, UNIX_TIMESTAMP(NOW(6)),
		x.EVENT_ID, (SELECT MAX(a.ATTR_VALUE) FROM performance_schema.session_connect_attrs a
			WHERE a.PROCESSLIST_ID = t.PROCESSLIST_ID AND a.ATTR_NAME = 'program_name')
	FROM performance_schema.threads t
	LEFT JOIN performance_schema.events_statements_current s
		ON s.THREAD_ID = t.THREAD_ID AND s.NESTING_EVENT_LEVEL = 0
	LEFT JOIN performance_schema.events_transactions_current x
		ON x.THREAD_ID = t.THREAD_ID AND x.STATE = 'ACTIVE'
	WHERE t.TYPE = 'FOREGROUND' AND t.PROCESSLIST_ID <> CONNECTION_ID()`,
	locksSQL: `SELECT o.session, o.number,
		CONCAT('` + "`', REPLACE(l.OBJECT_SCHEMA, '`', '``'), '`.`', REPLACE(l.OBJECT_NAME, '`', '``'), '`" + `'),
		l.INDEX_NAME, l.LOCK_STATUS = 'WAITING', l.LOCK_MODE LIKE 'S%', l.LOCK_DATA
	FROM performance_schema.data_locks l STRAIGHT_JOIN o ON o.number = l.ENGINE_TRANSACTION_ID
	WHERE l.LOCK_TYPE = 'RECORD' AND l.LOCK_MODE IN ('X', 'X,REC_NOT_GAP', 'S', 'S,REC_NOT_GAP') AND `,
	// A lock's own THREAD_ID is not asked for: the thread that made the entry may be another
	// session's, which split a page, or found a row that its inserter holds without an entry. The
	// owner itself makes the lock of the table, which comes before any of its rows.
	ownersSQL: `SELECT DISTINCT l.ENGINE_TRANSACTION_ID AS number, t.PROCESSLIST_ID AS session
	FROM performance_schema.data_locks l JOIN performance_schema.threads t ON t.THREAD_ID = l.THREAD_ID
	WHERE l.LOCK_TYPE = 'TABLE' AND t.PROCESSLIST_ID <> CONNECTION_ID()`,
}

// mariadb lists the row locks that somebody waits for, in InnoDB's views. Without PROCESS the
// server shows only sessions of the same user.
//
// A shared lock shows as that of each unnumbered transaction: of several, nobody knows which of
// them has it. One that blocks nobody is that of one that waits. A probe is no waiter.
var mariadb = views{
	mariadb: true,
	// The view has the time in the server's time zone, whatever the session's is, and in whole
	// seconds. A transaction that began in this second may be followed by another that did.
	peopleSQL: `SELECT p.ID, p.USER, p.HOST, p.DB, p.COMMAND, p.INFO, p.TIME_MS / 1000, now - begun, now,
		IF(now - begun >= 1, begun, NULL), '' FROM (SELECT UNIX_TIMESTAMP(NOW(6)) AS now) n
	CROSS JOIN information_schema.processlist p LEFT JOIN (
		SELECT trx_mysql_thread_id AS session, CAST(UNIX_TIMESTAMP(
			CONVERT_TZ(trx_started, 'SYSTEM', @@session.time_zone)) AS INTEGER) AS begun
		FROM information_schema.innodb_trx) t ON t.session = p.ID WHERE p.ID <> CONNECTION_ID()`,
	locksSQL: `SELECT IF(t.trx_id = 0 AND l.lock_id <> COALESCE(t.trx_requested_lock_id, '') AND (
			SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_id = 0 AND trx_rows_locked > 0
				AND trx_requested_lock_id IS NULL) > 1, '', t.trx_mysql_thread_id), t.trx_id,
		l.lock_table, l.lock_index, COALESCE(l.lock_id = t.trx_requested_lock_id, 0), l.lock_mode = 'S', l.lock_data
	FROM information_schema.innodb_locks l JOIN information_schema.innodb_trx t
		ON t.trx_id = l.lock_trx_id AND (t.trx_id <> 0 OR t.trx_rows_locked > 0)
	WHERE l.lock_type = 'RECORD' AND l.lock_mode IN ('X', 'S') AND (t.trx_id <> 0
		OR l.lock_id = t.trx_requested_lock_id OR EXISTS (SELECT 1 FROM information_schema.innodb_lock_waits w
			WHERE w.blocking_lock_id = l.lock_id AND w.requested_lock_id <> l.lock_id))
		AND COALESCE(t.trx_query, '') NOT LIKE '%` + probeMark + `%'`,
	ownersSQL: "SELECT trx_id AS number, trx_mysql_thread_id AS session FROM information_schema.innodb_trx",
}
