package mysql

import (
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/label"
)

const (
	// guardSQL changes settings of a caller's session, which are restored with the end of the
	// transaction: autocommit, which also begins the transaction, the isolation level, and the
	// lease, which is wait_timeout and, for a client that stops reading a result,
	// net_write_timeout. The level is the session's, because that of a single transaction would
	// outlive one that SET commits.
	//
	// A transaction that the session was left with is committed first, as START TRANSACTION does.
	// It would keep its level and its snapshot, and end with the lock. SET commits when it switches
	// autocommit on, which must be off before that. The server assigns from left to right, and
	// reads all values before.
	guardSQL = "SET @txlock_autocommit = @@autocommit, @txlock_wait_timeout = @@wait_timeout, " +
		"@txlock_net_write_timeout = @@net_write_timeout, " +
		"@txlock_isolation = " + sqltext.Isolation + ", autocommit = 0, autocommit = 1, autocommit = 0, " +
		sqltext.AtReadCommitted
	restored = "autocommit = @txlock_autocommit, wait_timeout = @txlock_wait_timeout, " +
		"net_write_timeout = @txlock_net_write_timeout, @txlock_net_write_timeout = NULL, " +
		sqltext.Isolation + " = @txlock_isolation, @txlock = NULL, @txlock_autocommit = NULL, " +
		"@txlock_wait_timeout = NULL, @txlock_isolation = NULL"
	forgotten = ", " + reached + " = NULL, " + judgedRows + " = NULL"

	// commits ends a transaction in the statement that restores the settings: a server that is told
	// to switch autocommit on commits (MySQL manual, section 15.3.1). A commit that the server
	// refuses is the statement's error.
	//
	// Nothing may follow COMMIT in the query: a KILL QUERY that comes during COMMIT would hit that,
	// and its error be taken for that of COMMIT. Callers whose connections have autocommit=0 pay
	// for it on MySQL: the statement switches it off again, and the server keeps the transaction's
	// metadata locks, for which DDL waits, until the connection is used again.
	commits = "autocommit = 1, "
)

// settingsSQL is the statement that gives the session the settings that a lock needs. On a pool of
// Open they stay, so it is empty for all locks but a connection's first, and the first after work
// that may have changed them.
func (s *session) settingsSQL(request dialects.Request) string {
	text := guardSQL
	if s.conn.Owned != nil {
		if s.conn.Owned.Lease == request.Lease {
			return ""
		}
		text = client.Settings
		// The pool lets its idle connections go before the server does.
		s.driver.pool.DB.SetConnMaxIdleTime(request.Lease / 2)
		s.conn.Owned.Lease = 0 // until it is known what the session has
	}
	lease := sqltext.Seconds(request.Lease)
	text += ", wait_timeout = " + lease + ", net_write_timeout = " + lease
	if !s.conn.Several && !s.driver.pool.Mute() {
		text += ", " + announceSQL(request)
	}
	s.changed = s.conn.Owned == nil
	return text
}

// restoredSQL is the rest of a SET that gives a session of the caller's its settings back. Each
// assignment costs MySQL more than a microsecond.
func (s *session) restoredSQL() string {
	if s.scripted {
		return restored + forgotten
	}
	return restored
}

// pingMark is the comment of a heartbeat.
const pingMark = sqltext.CommentMark + "ping */ "

// labelOf is the label of a session that locks the rows of request. Labels have no * and no quotes.
func labelOf(request dialects.Request) string { return label.Begin + label.Of(request) }

// valueOf is the variable's new value, or empty: no session of the caller's has the variable. An
// owner sets it, and a guest adds to it.
func (d *Driver) valueOf(shown string, as role) string {
	switch {
	case as == foreign, d.pool.Mute():
		return ""
	case as == guest:
		_, bracket, _ := strings.Cut(shown, " ") // behind the number of the process
		return "CONCAT(@" + sqltext.Variable + ", ' " + bracket + "')"
	}
	return "'" + shown + "'"
}

// announceSQL is an assignment that travels with the settings, before the lock.
func announceSQL(request dialects.Request) string {
	return "@" + sqltext.Variable + " = '" + labelOf(request) + "'"
}
