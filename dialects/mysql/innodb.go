package mysql

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/label"
)

// lookAtMariaDB reads InnoDB's views, which show a row lock only while somebody waits for it. It
// finds other held rows by trying, and their holders by waiting for them for a moment.
func (d *Driver) lookAtMariaDB(ctx context.Context, conn *sql.Conn, p *picture, slots int, only []int) error {
	if err := d.readings.enter(ctx); err != nil {
		return err
	}
	silent, err := d.readLocks(ctx, conn, p)
	d.readings.leave()
	if err == nil && only == nil {
		err = p.readIndexes(ctx, conn)
	}
	// an old picture may show no transaction: that must not hide the slots that were asked for
	if err != nil || silent == 0 && only == nil {
		return err
	}
	return d.findHolders(ctx, conn, p, slots, only)
}

// readPeople reads the sessions, except those of awaitHolder, which hold nothing. Without PROCESS
// the server shows only those of the same user.
func (p *picture) readPeople(ctx context.Context, conn *sql.Conn) error {
	lines, err := server.Grid(ctx, conn, "SELECT ID, USER, HOST, DB, COMMAND, INFO, TIME_MS, UNIX_TIMESTAMP(NOW(6)) FROM "+
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
		party := &dialects.Party{
			Session: line[0], User: line[1], Host: line[2], Database: line[3],
			Idle: line[4] == "Sleep", Statement: line[5],
		}
		if shown := sqltext.LabelIn(line[5]); shown != "" {
			_, party.Process, party.Claims = label.Read(shown)
			milliseconds, _ := strconv.ParseFloat(line[6], 64)
			party.For = time.Duration(milliseconds * float64(time.Millisecond))
			party.Since = p.since(party.For)
		}
		p.people[party.Session] = party
	}
	return p.readLabels(ctx, conn)
}

// readLabels reads what sessions say of themselves. The server shows that only with
// performance_schema on, which is not its default.
func (p *picture) readLabels(ctx context.Context, conn *sql.Conn) error {
	lines, err := server.Grid(ctx, conn, `SELECT t.PROCESSLIST_ID, v.VARIABLE_VALUE, s.SQL_TEXT
		FROM performance_schema.threads t
		LEFT JOIN performance_schema.user_variables_by_thread v
			ON v.THREAD_ID = t.THREAD_ID AND v.VARIABLE_NAME = '`+sqltext.Variable+`'
		LEFT JOIN performance_schema.events_statements_current s ON s.THREAD_ID = t.THREAD_ID
		WHERE t.TYPE = 'FOREGROUND'`)
	if server.Number(err) != 0 { // no privilege: it stays blank
		return nil
	}
	for _, line := range lines {
		party := p.people[line[0]]
		if party == nil {
			continue
		}
		_, process, claims := label.Read(line[1])
		party.Process, party.Claims = max(party.Process, process), append(party.Claims, claims...)
		if party.Statement == "" {
			party.Statement = line[2]
		}
	}
	return err
}

const innodbLocksSQL = `SELECT t.trx_mysql_thread_id, t.trx_id, l.lock_id = t.trx_requested_lock_id, l.lock_mode = 'S',
	l.lock_table, l.lock_index, l.lock_data, (SELECT COUNT(*) FROM information_schema.innodb_lock_waits w
		WHERE w.requested_lock_id = l.lock_id AND w.requesting_trx_id = t.trx_id), ` + sharingSQL + `
	FROM information_schema.innodb_locks l JOIN information_schema.innodb_trx t
		ON t.trx_id = l.lock_trx_id AND (t.trx_id <> 0 OR t.trx_rows_locked > 0)
	WHERE l.lock_type = 'RECORD' AND l.lock_mode IN ('X', 'S')`

// readLocks reads the sessions and the locks that somebody waits for. Silent is how many
// transactions hold other locks. It is called between readings.enter and leave.
func (d *Driver) readLocks(ctx context.Context, conn *sql.Conn, p *picture) (silent int, err error) {
	if err := d.readings.rest(ctx); err != nil {
		return 0, err
	}
	defer func() { d.readings.last = time.Now() }()
	if err := p.readPeople(ctx, conn); err != nil { // just before the locks, so that their owners are there
		return 0, err
	}
	locks, err := server.Grid(ctx, conn, innodbLocksSQL)
	if err != nil {
		return 0, err
	}
	if err := p.begun(ctx, conn); err != nil {
		return 0, err
	}
	waits := map[string]bool{}
	for _, line := range locks {
		lock := rowLock{
			session: line[0], transaction: p.identity(line[1], line[0]),
			waiting: line[2] == "1", shared: line[3] == "1",
			table: p.parsed(line[4], ""), index: strings.Trim(line[5], "`"), value: recordValue(line[6]),
		}
		waits[lock.session] = waits[lock.session] || lock.waiting
		lock.party = p.people[lock.session]
		if line[1] == "0" && !lock.waiting { // what one of them waits for is its own
			if lock.sharing, _ = strconv.Atoi(line[8]); lock.sharing == 0 {
				continue // another waits for it, and nobody has it
			}
		}
		lock.place, _ = strconv.Atoi(line[7])
		p.locks = append(p.locks, lock)
	}
	holders, err := server.Grid(ctx, conn, "SELECT trx_mysql_thread_id, trx_rows_locked FROM information_schema.innodb_trx "+
		"WHERE trx_rows_locked > 0 AND trx_mysql_thread_id <> CONNECTION_ID()")
	for _, line := range holders {
		if !waits[line[0]] || line[1] != "1" { // 1: only the row that it waits for
			silent++
		}
	}
	return silent, err
}

// begun notes when the transactions of sessions that do not wait began. The view has that in the
// server's time zone, whatever the session's is, and in whole seconds: one that began in this
// second may be followed by another that did.
func (p *picture) begun(ctx context.Context, conn *sql.Conn) error {
	lines, err := server.Grid(ctx, conn, "SELECT trx_mysql_thread_id, "+begunSQL+" FROM information_schema.innodb_trx")
	for _, line := range lines {
		seconds, failed := strconv.ParseFloat(line[1], 64)
		if failed == nil && p.now >= seconds+1 {
			p.begins[line[0]] = strconv.FormatInt(int64(seconds), 10)
		}
		if party := p.people[line[0]]; party != nil && party.Since.IsZero() && failed == nil {
			party.For = max(time.Duration((p.now-seconds)*float64(time.Second)), 0)
			party.Since = p.since(party.For)
		}
	}
	return err
}

// begunSQL is when a transaction began, in seconds since 1970.
const begunSQL = "UNIX_TIMESTAMP(CONVERT_TZ(trx_started, 'SYSTEM', @@session.time_zone))"

// isInMariaDB tells whether the session is still in the transaction that Inspect showed.
func (d *Driver) isInMariaDB(ctx context.Context, conn *sql.Conn, party dialects.Party) (bool, error) {
	number, begin, err := takeApart(party)
	if err != nil {
		return false, err
	}
	if err := d.readings.enter(ctx); err != nil {
		return false, err
	}
	defer d.readings.leave()
	if err := d.readings.rest(ctx); err != nil {
		return false, err
	}
	defer func() { d.readings.last = time.Now() }()
	same := ""
	if begin != "" {
		same = " AND trx_rows_locked > 0 AND " + begunSQL + " = " + begin
	}
	found, err := server.Grid(ctx, conn, "SELECT 1 FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = "+
		party.Session+" AND trx_id = "+number+same)
	return len(found) > 0, err
}

// readings spaces out the readings of InnoDB's views on MariaDB: within 100 ms the server serves an
// old picture. A reader leaves after each picture, so that a long search does not keep others
// waiting.
type readings struct {
	made   sync.Once
	reader chan struct{} // has room for one, to whom the fields below belong
	last   time.Time     // the next picture has to be newer than this
	old    bool          // the last picture was old, because somebody else reads too
}

// enter waits until nobody else of this driver reads. Leave is called after the reading.
func (r *readings) enter(ctx context.Context) error {
	r.made.Do(func() { r.reader = make(chan struct{}, 1) })
	select {
	case r.reader <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *readings) leave() { <-r.reader }

// rest waits until a reading shows the present, unless somebody else reads all the time.
func (r *readings) rest(ctx context.Context) error {
	const cached = 105 * time.Millisecond
	spread := 30 * time.Millisecond // so that two readers do not stay in step
	if r.old {
		spread = 300 * time.Millisecond // several that go on reading would keep the picture old for all
	}
	timer := time.NewTimer(time.Until(r.last.Add(cached + rand.N(spread))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
