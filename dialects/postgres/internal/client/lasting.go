package client

import (
	"errors"
	"strconv"
	"time"

	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// Lasting are the settings of an owner on a connection of the library's own. They are set once, for
// as long as the connection lives, so that a lock sends no statement for them.
//
// They are set only where the server says that it is the backend whose number the connection has.
// A pooler in between has numbers of its own; it would give the settings to another client. With
// each lock the server says what they are. When that is not what it said at first, the lock is
// taken anew, with settings of its own.
type Lasting struct {
	pid    string
	lease  time.Duration
	answer string // of AnswerSQL, once they are set; empty: they are not, or a pooler is in between
}

const (
	// AnswerSQL is a column for Check and Note. It leaves the check of the client out: what resets
	// that resets the lease too. Only work can do harm where the default is not read only.
	AnswerSQL = "current_setting('idle_in_transaction_session_timeout')"
	// GuardedAnswerSQL is the same for work.
	GuardedAnswerSQL = "case when current_setting('default_transaction_read_only') = 'on' then " + AnswerSQL + " end"
)

// ErrUnsettled occurs when the settings are not what they were. The transaction is not used.
var ErrUnsettled = errors.New("the settings of the connection have changed")

// Serve tells whether a lock with that lease needs no settings of its own. It is called for nil
// too: the connection is a caller's.
func (l *Lasting) Serve(lease time.Duration) bool {
	return l != nil && l.answer != "" && l.lease == lease
}

// Due tells whether the settings are to be set with a lock with that lease. Behind a pooler they
// never are again.
func (l *Lasting) Due(lease time.Duration) bool {
	return l != nil && l.lease != lease
}

// Set sets them.
func (l *Lasting) Set(lease time.Duration) sqltext.Statement {
	return sqltext.With("select "+LeaseSQL("$1", "$2", false)+", set_config('default_transaction_read_only', 'on', "+
		"false) where pg_backend_pid()::text = $3",
		sqltext.Milliseconds(lease), sqltext.Milliseconds(ClientCheck), l.pid)
}

// Forget notes that nothing is known of the settings.
func (l *Lasting) Forget() { l.lease, l.answer = 0, "" }

// Note notes what the server has said: set to Set, answer to AnswerSQL.
func (l *Lasting) Note(lease time.Duration, set, answer []string) {
	if len(answer) == 0 { // no row was locked
		return
	}
	l.lease, l.answer = lease, ""
	if len(set) > 0 {
		l.answer = answer[0]
	}
}

// Check notes that the settings are not what they were.
func (l *Lasting) Check(answer []string) error {
	if len(answer) == 0 || answer[0] == l.answer {
		return nil
	}
	l.Forget()
	return ErrUnsettled
}

// ClientCheck is how long a dead waiter may stay in the queue.
const ClientCheck = 500 * time.Millisecond

// LeaseSQL sets what ends a session whose client is gone.
//
// The server ends the session after the lease. Its timer counts idle time; where a client has
// stopped reading a large result, the server's kernel counts. The server looks now and then whether
// a waiter's client is still there: otherwise a dead one would stay in the queue until its turn. It
// starts that timer at the beginning of a statement, so this one must precede the wait.
func LeaseSQL(lease, check string, local bool) string {
	end := ", " + strconv.FormatBool(local) + ")"
	return "set_config('idle_in_transaction_session_timeout', " + lease + end + ", set_config('tcp_user_timeout', " +
		lease + end + ", set_config('client_connection_check_interval', " + check + end
}

// Leased makes a transaction one that ends with its client, as a lock's does.
func Leased(lease time.Duration) sqltext.Statement {
	return sqltext.With("select "+LeaseSQL("$1", "$2", true), sqltext.Milliseconds(lease),
		sqltext.Milliseconds(ClientCheck))
}
