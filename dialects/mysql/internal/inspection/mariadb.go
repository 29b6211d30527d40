package inspection

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// mariadb shows a row lock, in InnoDB's views, only while somebody waits for it. So the rows that
// were named are waited for, a few at a time: see probe.
type mariadb struct {
	control *sql.DB
	mu      sync.Mutex // of who reads
}

func (m *mariadb) views() views {
	return views{
		read: m.read, grant: "GRANT PROCESS ON *.* TO …",
		present: "SELECT ID FROM information_schema.processlist WHERE ID = ",
	}
}

func (m *mariadb) read(ctx context.Context, p *picture) error {
	const atOnce = 4 // rows that are waited for, each on a connection
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case p.of.Brief: // who reads the views keeps others from a new picture
		return nil
	case p.of.Slots == nil:
		return p.readLocks(ctx)
	}
	for _, table := range p.tables {
		for rows := range slices.Chunk(table.only, atOnce) {
			if err := m.probe(ctx, p, table, rows); err != nil {
				return err
			}
		}
	}
	return nil
}

// probeMark is the comment of a probe, and probeFor is for how long it waits: until the views have
// been read, also if somebody else reads them.
const (
	probeMark = sqltext.CommentMark + "probe */ "
	probeFor  = 600 * time.Millisecond
)

// probe waits for those of rows that are held while the views are read, and gives back at once what
// it gets. Of a row that it did not get, for want of a connection say, and whose holder is not
// shown, nobody knows who holds it.
func (m *mariadb) probe(ctx context.Context, p *picture, table ours, rows []string) error {
	rows, err := p.held(ctx, table, rows)
	if err != nil || len(rows) == 0 {
		return err
	}
	var probes sync.WaitGroup
	got := make([]bool, len(rows))
	for i, row := range rows {
		probes.Go(func() { got[i] = m.gets(ctx, table, row) })
	}
	found := *p
	found.people, found.locks = map[string]*person{}, nil
	err = found.readLocks(ctx)
	probes.Wait()
	maps.Copy(p.people, found.people)
	for i, row := range rows {
		for _, lock := range found.locks {
			known := lock.session == "" || found.people[lock.session] != nil
			if known && lock.table == table.Table && lock.value == row {
				p.locks = append(p.locks, lock)
				got[i] = got[i] || !lock.waiting
			}
		}
		if !got[i] {
			p.locks = append(p.locks, rowLock{table: table.Table, index: primary, value: row})
		}
	}
	return err
}

// held are those of rows that somebody has. It takes the others for a moment.
func (p *picture) held(ctx context.Context, table ours, rows []string) (held []string, err error) {
	for _, row := range rows {
		free, err := p.ask(ctx, sqltext.OnMariaDB(sqltext.SomeWait)+lockSQL(table, row)+sqltext.SkipLocked)
		switch number := server.Number(err); {
		case number == server.OnlyStatements, number == server.OnlyReads:
			return nil, nil // nobody locks there
		case err == nil && len(free) == 0:
			held = append(held, row)
		case err == nil:
			_, err = p.ask(ctx, "ROLLBACK")
		}
		if err != nil {
			return nil, err
		}
	}
	return held, nil
}

func lockSQL(table ours, row string) string {
	return fmt.Sprintf("SELECT %s%s FROM %s WHERE %[2]s = %[4]s FOR UPDATE", probeMark, table.column, table.quoted, row)
}

// gets waits for a row on a connection of its own, and tells whether it got it. The server limits
// the wait: nothing need be interrupted.
func (m *mariadb) gets(ctx context.Context, table ours, row string) bool {
	brief, cancel := context.WithTimeout(ctx, probeFor)
	defer cancel()
	conn, err := m.control.Conn(brief)
	if err != nil {
		return false
	}
	defer conn.Close()
	clean, stop := context.WithTimeout(context.WithoutCancel(ctx), probeFor+interrupt.CleanUp)
	defer stop()
	// As on each connection of a pool of the caller's: what it was left with is committed.
	if _, err = conn.ExecContext(clean, "COMMIT"); err != nil {
		return false
	}
	end, _ := brief.Deadline()
	limits := sqltext.OnMariaDB(sqltext.SomeWait, fmt.Sprintf("max_statement_time=%.3f",
		max(time.Until(end), time.Millisecond).Seconds()))
	_, waited := server.Grid(clean, conn, limits+lockSQL(table, row))
	if _, err = conn.ExecContext(clean, "ROLLBACK"); err != nil { // at once: it may have the row
		server.Destroy(conn)
	}
	return waited == nil
}

// renew has the server make a new picture. A reading within 100 ms of another's gets the old one:
// so this begins a transaction, and reads until it sees the very statement that looks for it there.
// When others read all the time, the server makes none, and the old one has to do.
func (p *picture) renew(ctx context.Context) error {
	const looks, cached, spread = 4, 105 * time.Millisecond, 30 * time.Millisecond // so that two do not stay in step
	if _, err := p.ask(ctx, "START TRANSACTION WITH CONSISTENT SNAPSHOT"); err != nil {
		return err
	}
	for look := range looks {
		interrupt.ClosedWithin(ctx.Done(), cached+rand.N(spread<<look))
		found, err := p.ask(ctx, fmt.Sprintf("SELECT 1 FROM information_schema.innodb_trx WHERE "+
			"trx_mysql_thread_id = CONNECTION_ID() AND LOCATE('look %d', trx_query) > 0", rand.Uint64()))
		if err != nil || len(found) > 0 {
			return err
		}
	}
	return nil
}

// readPeople reads the sessions, except those of probes, which hold nothing. Without PROCESS the
// server shows only those of the same user.
func (p *picture) readPeople(ctx context.Context) error {
	lines, err := p.ask(ctx, "SELECT ID, USER, HOST, DB, COMMAND, INFO, TIME_MS, UNIX_TIMESTAMP(NOW(6)) FROM "+
		"information_schema.processlist WHERE ID <> CONNECTION_ID()")
	if err != nil {
		return err
	}
	for _, line := range lines {
		if strings.Contains(line[5], probeMark) {
			continue
		}
		if session, waits := p.meet(line); waits {
			milliseconds, _ := strconv.ParseFloat(line[6], 64)
			session.lasts(line[7], milliseconds/1000)
		}
	}
	// What sessions say of themselves the server shows only with performance_schema on, which is
	// not its default.
	lines, err = p.ask(ctx, `SELECT t.PROCESSLIST_ID, v.VARIABLE_VALUE, s.SQL_TEXT
		FROM performance_schema.threads t
		LEFT JOIN performance_schema.user_variables_by_thread v
			ON v.THREAD_ID = t.THREAD_ID AND v.VARIABLE_NAME = '`+sqltext.Variable+`'
		LEFT JOIN performance_schema.events_statements_current s ON s.THREAD_ID = t.THREAD_ID
		WHERE t.TYPE = 'FOREGROUND'`)
	if server.Number(err) != 0 { // no privilege: it stays blank
		return nil
	}
	for _, line := range lines {
		if session := p.people[line[0]]; session != nil {
			session.hear(line[1])
			session.Statement = cmp.Or(session.Statement, line[2])
		}
	}
	return err
}

const (
	// innodbLocksSQL shows a shared lock as that of each unnumbered transaction: of several, nobody
	// knows which of them has it. One that blocks nobody is that of one that waits.
	innodbLocksSQL = `SELECT IF(t.trx_id = 0 AND l.lock_id <> COALESCE(t.trx_requested_lock_id, '') AND (
			SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_id = 0 AND trx_rows_locked > 0
				AND trx_requested_lock_id IS NULL) > 1, '', t.trx_mysql_thread_id),
		l.lock_table, l.lock_index, COALESCE(l.lock_id = t.trx_requested_lock_id, 0), l.lock_mode = 'S', l.lock_data
	FROM information_schema.innodb_locks l JOIN information_schema.innodb_trx t
		ON t.trx_id = l.lock_trx_id AND (t.trx_id <> 0 OR t.trx_rows_locked > 0)
	WHERE l.lock_type = 'RECORD' AND l.lock_mode IN ('X', 'S') AND (t.trx_id <> 0
		OR l.lock_id = t.trx_requested_lock_id OR EXISTS (SELECT 1 FROM information_schema.innodb_lock_waits w
			WHERE w.blocking_lock_id = l.lock_id AND w.requested_lock_id <> l.lock_id))`

	// transactionsSQL reads when they began, in whole seconds since 1970, and for how long they
	// last. The view has that in the server's time zone, whatever the session's is.
	transactionsSQL = `SELECT trx_mysql_thread_id, trx_id, begun, UNIX_TIMESTAMP(NOW(6)), UNIX_TIMESTAMP(NOW(6)) - begun
	FROM (SELECT trx_mysql_thread_id, trx_id, CAST(UNIX_TIMESTAMP(CONVERT_TZ(trx_started, 'SYSTEM',
		@@session.time_zone)) AS INTEGER) AS begun FROM information_schema.innodb_trx) t`
)

// readLocks reads the sessions and the locks that somebody waits for.
func (p *picture) readLocks(ctx context.Context) error {
	if err := p.renew(ctx); err != nil {
		return err
	}
	if err := p.readPeople(ctx); err != nil { // just before the locks, so that their owners are there
		return err
	}
	locks, err := p.ask(ctx, innodbLocksSQL)
	if err != nil {
		return err
	}
	for _, line := range locks {
		p.add(line[0], p.table(line[1], ""), line[2:])
	}
	transactions, err := p.ask(ctx, transactionsSQL)
	for _, line := range transactions {
		session := p.people[line[0]]
		lasts, failed := strconv.ParseFloat(line[4], 64)
		if session == nil || failed != nil {
			continue
		}
		if lasts >= 1 { // one that began in this second may be followed by another that did
			session.begin = line[2]
		}
		if session.pin(line[1]); session.Since.IsZero() {
			session.lasts(line[3], lasts)
		}
	}
	return err
}
