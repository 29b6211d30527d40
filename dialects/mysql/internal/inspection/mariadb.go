package inspection

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// mariadb shows a row lock, in InnoDB's views, only while somebody waits for it. Other held rows
// are found by trying, and their holders by waiting for them for a moment: see findHolders.
//
// Within 100 ms of a reading the server serves the same picture again, so readings are spaced out.
// A reader leaves after each picture, so that a long search does not keep others waiting.
type mariadb struct {
	control *sql.DB
	reader  chan struct{} // has room for one, to whom the fields below belong
	last    time.Time     // of the last reading
	old     bool          // it was served an old picture, because somebody else reads too
}

func (*mariadb) present() string { return "SELECT ID FROM information_schema.processlist WHERE ID = " }

func (*mariadb) grant() string { return "GRANT PROCESS ON *.* TO …" }

func (m *mariadb) read(ctx context.Context, p *picture) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	silent, err := m.readLocks(ctx, p)
	m.leave()
	// an old picture may show no transaction: that must not hide the rows that were asked for
	if err != nil || silent == 0 && p.only == nil {
		return err
	}
	return m.findHolders(ctx, p)
}

// enter waits until nobody else of this driver reads. Leave is called after the reading.
func (m *mariadb) enter(ctx context.Context) error {
	select {
	case m.reader <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *mariadb) leave() { <-m.reader }

// renew has the server make a new picture. A reading within 100 ms of another's gets the old one:
// so this begins a transaction, and reads until it sees the very statement that looks for it there.
// When others read all the time, the server makes none, and the old one has to do.
func (m *mariadb) renew(ctx context.Context, p *picture) (err error) {
	const looks = 4
	if _, err := p.ask(ctx, "START TRANSACTION WITH CONSISTENT SNAPSHOT"); err != nil {
		return err
	}
	defer func() {
		clean, cancel := interrupt.Detached(ctx)
		defer cancel()
		_, failed := p.ask(clean, "ROLLBACK")
		err = cmp.Or(err, failed)
	}()
	for range looks {
		if err := m.rest(ctx); err != nil {
			return err
		}
		found, err := p.ask(ctx, fmt.Sprintf("SELECT 1 FROM information_schema.innodb_trx WHERE "+
			"trx_mysql_thread_id = CONNECTION_ID() AND LOCATE('look %d', trx_query) > 0", rand.Uint64()))
		m.last, m.old = time.Now(), len(found) == 0
		if err != nil || !m.old {
			return err
		}
	}
	return nil
}

// rest waits until the picture that was read last is not served any more.
func (m *mariadb) rest(ctx context.Context) error {
	const cached = 105 * time.Millisecond
	spread := 30 * time.Millisecond // so that two readers do not stay in step
	if m.old {
		spread = 300 * time.Millisecond // several that go on reading would keep the picture old for all
	}
	interrupt.ClosedWithin(ctx.Done(), time.Until(m.last.Add(cached+rand.N(spread))))
	return ctx.Err()
}

// readPeople reads the sessions, except those of awaitHolder, which hold nothing. Without PROCESS
// the server shows only those of the same user.
func (p *picture) readPeople(ctx context.Context) error {
	lines, err := p.ask(ctx, "SELECT ID, USER, HOST, DB, COMMAND, INFO, TIME_MS, UNIX_TIMESTAMP(NOW(6)) FROM "+
		"information_schema.processlist WHERE ID <> CONNECTION_ID()")
	if err != nil {
		return err
	}
	for _, line := range lines {
		if p.now, err = strconv.ParseFloat(line[7], 64); err != nil {
			return err
		}
		if strings.Contains(line[5], probeMark) {
			continue
		}
		if party, waits := p.meet(line); waits {
			milliseconds, _ := strconv.ParseFloat(line[6], 64)
			p.lasts(party, time.Duration(milliseconds*float64(time.Millisecond)))
		}
	}
	return p.readLabels(ctx)
}

// readLabels reads what sessions say of themselves. The server shows that only with
// performance_schema on, which is not its default.
func (p *picture) readLabels(ctx context.Context) error {
	lines, err := p.ask(ctx, `SELECT t.PROCESSLIST_ID, v.VARIABLE_VALUE, s.SQL_TEXT
		FROM performance_schema.threads t
		LEFT JOIN performance_schema.user_variables_by_thread v
			ON v.THREAD_ID = t.THREAD_ID AND v.VARIABLE_NAME = '`+sqltext.Variable+`'
		LEFT JOIN performance_schema.events_statements_current s ON s.THREAD_ID = t.THREAD_ID
		WHERE t.TYPE = 'FOREGROUND'`)
	if server.Number(err) != 0 { // no privilege: it stays blank
		return nil
	}
	for _, line := range lines {
		if party := p.people[line[0]]; party != nil {
			hear(party, line[1])
			party.Statement = cmp.Or(party.Statement, line[2])
		}
	}
	return err
}

const (
	innodbLocksSQL = `SELECT t.trx_mysql_thread_id, t.trx_id, l.lock_table, l.lock_index,
	l.lock_id = t.trx_requested_lock_id, l.lock_mode = 'S', l.lock_data,
	(SELECT COUNT(*) FROM information_schema.innodb_lock_waits w
		WHERE w.requested_lock_id = l.lock_id AND w.requesting_trx_id = t.trx_id), ` + sharingSQL + `
	FROM information_schema.innodb_locks l JOIN information_schema.innodb_trx t
		ON t.trx_id = l.lock_trx_id AND (t.trx_id <> 0 OR t.trx_rows_locked > 0)
	WHERE l.lock_type = 'RECORD' AND l.lock_mode IN ('X', 'S')`

	// sharingSQL counts the holders of a shared lock, l, by those whom the first that waits for it
	// waits for. Who waits behind also waits for others.
	sharingSQL = `(SELECT COUNT(*) FROM information_schema.innodb_lock_waits w
	WHERE w.blocking_lock_id = l.lock_id GROUP BY w.requesting_trx_id ORDER BY 1 LIMIT 1)`

	// begunSQL is when a transaction began, in seconds since 1970. The view has that in the
	// server's time zone, whatever the session's is.
	begunSQL = "UNIX_TIMESTAMP(CONVERT_TZ(trx_started, 'SYSTEM', @@session.time_zone))"
)

// readLocks reads the sessions and the locks that somebody waits for. Silent is how many
// transactions hold other locks. It is called between enter and leave.
func (m *mariadb) readLocks(ctx context.Context, p *picture) (silent int, err error) {
	if err := m.renew(ctx, p); err != nil {
		return 0, err
	}
	defer func() { m.last = time.Now() }()
	if err := p.readPeople(ctx); err != nil { // just before the locks, so that their owners are there
		return 0, err
	}
	locks, err := p.ask(ctx, innodbLocksSQL)
	if err != nil {
		return 0, err
	}
	if err := p.readBegins(ctx); err != nil {
		return 0, err
	}
	waits := map[string]bool{}
	for _, line := range locks {
		session, transaction, waiting := line[0], line[1], line[4] == "1"
		waits[session] = waits[session] || waiting
		sharing := 0
		if transaction == "0" && !waiting { // what one of them waits for is its own
			if sharing, _ = strconv.Atoi(line[8]); sharing == 0 {
				continue // another waits for it, and nobody has it
			}
		}
		p.add(session, transaction, p.parsed(line[2], ""), strings.Trim(line[3], "`"), line[4:8], sharing)
	}
	holders, err := p.ask(ctx, "SELECT trx_mysql_thread_id, trx_rows_locked FROM information_schema.innodb_trx "+
		"WHERE trx_rows_locked > 0 AND trx_mysql_thread_id <> CONNECTION_ID()")
	for _, line := range holders {
		if !waits[line[0]] || line[1] != "1" { // 1: only the row that it waits for
			silent++
		}
	}
	return silent, err
}

// readBegins notes when the transactions of sessions that do not wait began, in whole seconds: one
// that began in this second may be followed by another that did.
func (p *picture) readBegins(ctx context.Context) error {
	lines, err := p.ask(ctx, "SELECT trx_mysql_thread_id, "+begunSQL+" FROM information_schema.innodb_trx")
	for _, line := range lines {
		seconds, failed := strconv.ParseFloat(line[1], 64)
		if failed != nil {
			continue
		}
		if p.now >= seconds+1 {
			p.begins[line[0]] = strconv.FormatInt(int64(seconds), 10)
		}
		if party := p.people[line[0]]; party != nil && party.Since.IsZero() {
			p.lasts(party, max(time.Duration((p.now-seconds)*float64(time.Second)), 0))
		}
	}
	return err
}

func (m *mariadb) in(ctx context.Context, p *picture, session, number, begin string) (bool, error) {
	if err := m.enter(ctx); err != nil {
		return false, err
	}
	defer m.leave()
	if err := m.renew(ctx, p); err != nil {
		return false, err
	}
	defer func() { m.last = time.Now() }()
	same := ""
	if begin != "" {
		same = " AND trx_rows_locked > 0 AND " + begunSQL + " = " + begin
	}
	found, err := p.ask(ctx, "SELECT 1 FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = "+session+
		" AND trx_id = "+number+same)
	return len(found) > 0, err
}
