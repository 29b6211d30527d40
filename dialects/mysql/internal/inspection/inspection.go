// Package inspection shows who holds rows and who waits for them, as the views of MySQL and MariaDB
// have it, and ends sessions that it has shown.
package inspection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
)

// Inspector implements dialects.Inspector.
type Inspector struct{ Pool *client.Pool }

// Inspect does what dialects.Inspector promises.
func (i Inspector) Inspect(ctx context.Context, of dialects.Inspection) (entries []dialects.Entry, err error) {
	err = i.look(ctx, func(p *picture) error {
		if p.mariadb && of.Brief { // who reads its views keeps others from a new picture
			return nil
		}
		p.of = of
		err := p.readTables(ctx)
		if err == nil && p.mariadb && of.Slots != nil {
			err = p.probe(ctx, i.Pool)
		} else if err == nil {
			err = p.read(ctx)
		}
		entries = p.entries
		return err
	})
	return entries, err
}

// look begins a picture, and adds to the error of taking it which privilege that requires.
func (i Inspector) look(ctx context.Context, take func(*picture) error) error {
	return i.Pool.With(ctx, func(conn client.Conn) error {
		p, grant := &picture{Conn: conn, views: mysql}, "SELECT ON performance_schema.*"
		lines, err := p.Grid(ctx, "SELECT @@version LIKE '%MariaDB%', @@performance_schema, @@lower_case_table_names")
		if err != nil {
			return err
		}
		p.folds = lines[0][2] != "0"
		switch {
		case lines[0][0] == "1": // every release of MariaDB has its name in @@version
			p.views, grant = mariadb, "PROCESS ON *.*"
		case lines[0][1] == "0":
			return errors.New("the server was started with performance_schema=OFF, and then shows no locks: set " +
				"performance_schema=ON and restart it")
		}
		err = take(p)
		switch server.Number(err) {
		case server.NoPrivilege, 1044, 1227: // for a table, a database, all of them
			err = fmt.Errorf("this user may not see who holds locks (GRANT %s TO …): %w", grant, err)
		}
		return err
	})
}

// End does what dialects.Inspector promises.
func (i Inspector) End(ctx context.Context, party dialects.Party) error {
	if _, err := strconv.ParseUint(party.ID, 10, 64); err != nil { // a caller's, and not of a picture
		return dialects.ErrChanged
	}
	return i.look(ctx, func(p *picture) error {
		if err := p.readPeople(ctx); err != nil {
			return err
		}
		transactions, err := p.Grid(ctx, "SELECT number FROM ("+p.ownersSQL+") o WHERE session = "+party.ID)
		for _, line := range transactions {
			switch s := p.people[party.ID]; {
			case s == nil || pin(line[0], s.begun) != party.Transaction:
			case strings.HasSuffix(party.Transaction, unknown):
				return errors.New("the server does not tell the transaction of this reader from the next one of its " +
					"session: look again a second later; on MySQL that takes the consumer " +
					"events_transactions_current of performance_schema")
			default:
				return p.kill(ctx, party.ID)
			}
		}
		return cmp.Or(err, dialects.ErrChanged)
	})
}

// kill ends a session, and waits until the server has rolled its transaction back.
func (p *picture) kill(ctx context.Context, session string) error {
	_, err := p.Grid(ctx, "KILL "+session)
	switch server.Number(err) {
	case 1094: // there is no such session
		return dialects.ErrChanged
	case 1095: // it is not this user's
		return fmt.Errorf("only the session's own user, and users with CONNECTION_ADMIN (MariaDB: CONNECTION ADMIN), "+
			"may end it; on MySQL that takes SYSTEM_USER as well when the session's user has it, as root does: %w", err)
	}
	patience, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for lives := true; err == nil && lives; {
		if interrupt.ClosedWithin(patience.Done(), 5*time.Millisecond) {
			return fmt.Errorf("session %s was told to end, and had not done so yet: %w", session, patience.Err())
		}
		var people [][]string
		people, err = p.Grid(ctx, p.peopleSQL)
		lives = slices.ContainsFunc(people, func(line []string) bool { return line[0] == session })
	}
	return err
}

// renew has MariaDB make a new picture: a reading within 100 ms of another's gets the old one. It
// reads until it sees its own statement, a few times at most, since others may read all the time.
func (p *picture) renew(ctx context.Context) error {
	const looks, cached, spread = 4, 105 * time.Millisecond, 30 * time.Millisecond // so that two do not stay in step
	if _, err := p.Grid(ctx, "START TRANSACTION WITH CONSISTENT SNAPSHOT"); err != nil {
		return err
	}
	for look := range looks {
		interrupt.ClosedWithin(ctx.Done(), cached+rand.N(spread<<look))
		found, err := p.Grid(ctx, fmt.Sprintf("SELECT 1 FROM information_schema.innodb_trx WHERE "+
			"trx_mysql_thread_id = CONNECTION_ID() AND LOCATE('look %d', trx_query) > 0", rand.Uint64()))
		if err != nil || len(found) > 0 {
			return err
		}
	}
	return nil
}

const (
	// probeMark is in the statement of a probe, and probeFor is for how long that waits: until the
	// views have been read, also if somebody else reads them.
	probeMark = server.CommentMark + "probe"
	probeFor  = 600 * time.Millisecond
)

// named is a row that is looked for alone.
type named struct {
	dialects.Entry
	quoted, column string
}

// probe finds the holders of what was named. MariaDB shows a row lock only while somebody waits for
// it: so those that are held are waited for, a few at a time, while the views are read. Where one
// stays held, and is not shown, its holder is unknown: there was no connection to wait on, say.
func (p *picture) probe(ctx context.Context, pool *client.Pool) error {
	const atOnce = 4 // each on a connection
	held, err := p.held(ctx, p.named)
	for some := range slices.Chunk(held, atOnce) {
		var probes sync.WaitGroup
		for _, row := range some {
			probes.Go(func() { row.await(ctx, pool) })
		}
		if err == nil {
			err = p.read(ctx)
		}
		probes.Wait()
	}
	if err == nil {
		held, err = p.held(ctx, held)
	}
	for _, row := range held {
		p.entries = append(p.entries, row.Entry)
	}
	return err
}

// held are rows that somebody has, and nobody is shown to have. It takes the others for a moment.
func (p *picture) held(ctx context.Context, rows []named) (held []named, err error) {
	for _, row := range rows {
		if isHeld(p.entries, row.Entry) {
			continue
		}
		free, err := p.Grid(ctx, server.OnMariaDB(server.SomeWait)+row.lockSQL()+server.SkipLocked)
		switch {
		case server.Number(err) == server.OnlyReads:
			return nil, nil // nobody locks there
		case err == nil && len(free) == 0:
			held = append(held, row)
		case err == nil:
			_, err = p.Grid(ctx, "ROLLBACK")
		}
		if err != nil {
			return nil, err
		}
	}
	return held, nil
}

func (n named) lockSQL() string {
	return fmt.Sprintf("SELECT %s */ %s FROM %s WHERE %[2]s = %[4]s FOR UPDATE", probeMark, n.column, n.quoted, n.Value)
}

// await waits for the row, if there is a connection for it, and gives it back at once. The server
// limits the wait: nothing need be interrupted.
func (n named) await(ctx context.Context, pool *client.Pool) {
	brief, cancel := context.WithTimeout(ctx, probeFor)
	defer cancel()
	_ = pool.With(brief, func(conn client.Conn) error {
		clean, cancel := interrupt.Detached(ctx)
		defer cancel()
		limits := server.OnMariaDB(server.SomeWait, fmt.Sprintf("max_statement_time=%.1f", probeFor.Seconds()))
		_, err := conn.Grid(clean, limits+n.lockSQL())
		return err
	})
}

// isHeld tells whether one of entries holds the row.
func isHeld(entries []dialects.Entry, row dialects.Entry) bool {
	return slices.ContainsFunc(entries, func(e dialects.Entry) bool {
		return !e.Waits && e.Kind == row.Kind && e.Table == row.Table && e.Column == row.Column && e.Value == row.Value
	})
}

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
	WHERE h.SQL_TEXT LIKE '%` + server.CommentMark + `%')`

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
