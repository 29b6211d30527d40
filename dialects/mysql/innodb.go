package mysql

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// lookAtMariaDB reads InnoDB's views, which show a row lock only while somebody waits for it. It
// finds other held rows by trying, and their holders by waiting for them for a moment.
func (d *Driver) lookAtMariaDB(ctx context.Context, conn *sql.Conn, s *scene, slots int, only []int) error {
	if err := d.views.enter(ctx); err != nil {
		return err
	}
	silent, err := d.readLocks(ctx, conn, s)
	d.views.leave()
	if err == nil && only == nil {
		err = s.readIndexes(ctx, conn)
	}
	// an old picture may show no transaction: that must not hide the slots that were asked for
	if err != nil || silent == 0 && only == nil {
		return err
	}
	return d.findHolders(ctx, conn, s, slots, only)
}

// readPeople reads the sessions, except probes, which hold nothing. Without PROCESS the server shows
// only those of the same user.
func (s *scene) readPeople(ctx context.Context, conn *sql.Conn) error {
	lines, err := grid(ctx, conn, "SELECT ID, USER, HOST, DB, COMMAND, INFO, TIME_MS, UNIX_TIMESTAMP(NOW(6)) FROM "+
		"information_schema.processlist WHERE ID <> CONNECTION_ID()")
	if err != nil {
		return err
	}
	for _, line := range lines {
		if s.now, err = strconv.ParseFloat(line[7], 64); err != nil {
			return err
		}
		if strings.Contains(line[5], probeMark) {
			continue
		}
		party := &dialects.Party{
			Session: line[0], User: line[1], Host: line[2], Database: line[3],
			Idle: line[4] == "Sleep", Statement: line[5],
		}
		if shown := labelIn(line[5]); shown != "" {
			_, party.Process, party.Claims = label.Read(shown)
			milliseconds, _ := strconv.ParseFloat(line[6], 64)
			party.For = time.Duration(milliseconds * float64(time.Millisecond))
			party.Since = s.since(party.For)
		}
		s.people[party.Session] = party
	}
	return s.readLabels(ctx, conn)
}

// readLabels reads what sessions say of themselves. The server shows that only with
// performance_schema on, which is not its default.
func (s *scene) readLabels(ctx context.Context, conn *sql.Conn) error {
	lines, err := grid(ctx, conn, `SELECT t.PROCESSLIST_ID, v.VARIABLE_VALUE, s.SQL_TEXT
		FROM performance_schema.threads t
		LEFT JOIN performance_schema.user_variables_by_thread v
			ON v.THREAD_ID = t.THREAD_ID AND v.VARIABLE_NAME = '`+variable+`'
		LEFT JOIN performance_schema.events_statements_current s ON s.THREAD_ID = t.THREAD_ID
		WHERE t.TYPE = 'FOREGROUND'`)
	if number(err) != 0 { // no privilege: it stays blank
		return nil
	}
	for _, line := range lines {
		party := s.people[line[0]]
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
		WHERE w.requested_lock_id = l.lock_id AND w.requesting_trx_id = t.trx_id)
	FROM information_schema.innodb_locks l JOIN information_schema.innodb_trx t ON t.trx_id = l.lock_trx_id
	WHERE l.lock_type = 'RECORD' AND l.lock_mode IN ('X', 'S')`

// readLocks reads the sessions and the locks that somebody waits for. Silent is how many transactions
// hold other locks. It is called between views.enter and leave.
func (d *Driver) readLocks(ctx context.Context, conn *sql.Conn, s *scene) (silent int, err error) {
	if err := d.views.rest(ctx); err != nil {
		return 0, err
	}
	defer func() { d.views.last = time.Now() }()
	if err := s.readPeople(ctx, conn); err != nil { // just before the locks, so that their owners are there
		return 0, err
	}
	locks, err := grid(ctx, conn, innodbLocksSQL)
	if err != nil {
		return 0, err
	}
	waits := map[string]bool{}
	for _, line := range locks {
		lock := rowLock{
			session: line[0], transaction: line[1], waiting: line[2] == "1", shared: line[3] == "1",
			table: s.parsed(line[4], ""), index: strings.Trim(line[5], "`"), value: recordValue(line[6]),
		}
		lock.party = s.people[lock.session]
		lock.place, _ = strconv.Atoi(line[7])
		s.locks = append(s.locks, lock)
		waits[lock.session] = waits[lock.session] || lock.waiting
	}
	if err := s.begun(ctx, conn); err != nil {
		return 0, err
	}
	holders, err := grid(ctx, conn, "SELECT trx_mysql_thread_id, trx_rows_locked FROM information_schema.innodb_trx "+
		"WHERE trx_rows_locked > 0 AND trx_mysql_thread_id <> CONNECTION_ID()")
	for _, line := range holders {
		if !waits[line[0]] || line[1] != "1" { // 1: only the row that it waits for
			silent++
		}
	}
	return silent, err
}

// begun notes when the transactions of sessions that do not wait began. The view has that in the
// server's time zone, whatever the session's is.
func (s *scene) begun(ctx context.Context, conn *sql.Conn) error {
	lines, err := grid(ctx, conn, "SELECT trx_mysql_thread_id, "+
		"UNIX_TIMESTAMP(CONVERT_TZ(trx_started, 'SYSTEM', @@session.time_zone)) FROM information_schema.innodb_trx")
	for _, line := range lines {
		seconds, failed := strconv.ParseFloat(line[1], 64)
		if party := s.people[line[0]]; party != nil && party.Since.IsZero() && failed == nil {
			party.For = max(time.Duration((s.now-seconds)*float64(time.Second)), 0)
			party.Since = s.since(party.For)
		}
	}
	return err
}

// isInMariaDB tells whether the session is still in the transaction that Inspect showed.
func (d *Driver) isInMariaDB(ctx context.Context, conn *sql.Conn, party dialects.Party) (bool, error) {
	if err := numbered(party); err != nil {
		return false, err
	}
	if err := d.views.enter(ctx); err != nil {
		return false, err
	}
	defer d.views.leave()
	if err := d.views.rest(ctx); err != nil {
		return false, err
	}
	defer func() { d.views.last = time.Now() }()
	found, err := grid(ctx, conn, "SELECT 1 FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = "+
		party.Session+" AND trx_id = "+party.Transaction)
	return len(found) > 0, err
}
