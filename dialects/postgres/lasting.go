package postgres

import (
	"errors"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// lasting are the settings of an owner on a connection of the library's own. They are set once, for
// as long as the connection lives, so that a lock sends no statement for them.
//
// They are set only where the server says that it is the backend whose number the connection has.
// A pooler in between has numbers of its own; it would give the settings to another client. With
// each lock the server says what they are. When that is not what it said at first, the lock is
// taken anew, with settings of its own.
type lasting struct {
	pid    string
	lease  time.Duration
	answer string // of answerSQL, once they are set; empty: they are not, or a pooler is in between
}

const (
	lastingSQL = "select set_config('idle_in_transaction_session_timeout', $1, false), " +
		"set_config('tcp_user_timeout', $1, false), " +
		"set_config('client_connection_check_interval', $2, false), " +
		"set_config('default_transaction_read_only', 'on', false) where pg_backend_pid()::text = $3"

	// answerSQL leaves the check of the client out: what resets that resets the lease too. Only
	// work can do harm where the default is not read only.
	answerSQL        = "current_setting('idle_in_transaction_session_timeout')"
	guardedAnswerSQL = "case when current_setting('default_transaction_read_only') = 'on' then " + answerSQL + " end"
)

// errUnsettled occurs when the settings are not what they were. The transaction is not used.
var errUnsettled = errors.New("the settings of the connection have changed")

// serve tells whether a lock of request needs no settings of its own. It is called for nil too: the
// connection is a caller's.
func (l *lasting) serve(request dialects.Request) bool {
	return l != nil && l.answer != "" && l.lease == request.Lease && isShort(request)
}

// due tells whether the settings are to be set with a lock of request. Behind a pooler they never
// are again.
func (l *lasting) due(request dialects.Request) bool {
	return l != nil && l.lease != request.Lease && isShort(request)
}

func (l *lasting) set(request dialects.Request) sqltext.Statement {
	return sqltext.With(lastingSQL, milliseconds(request.Lease), milliseconds(clientCheck), l.pid)
}

// forget notes that nothing is known of the settings.
func (l *lasting) forget() { l.lease, l.answer = 0, "" }

// note notes what the server has said: set to lastingSQL, answer to answerSQL.
func (l *lasting) note(request dialects.Request, set, answer []string) {
	if len(answer) == 0 { // no row was locked
		return
	}
	l.lease, l.answer = request.Lease, ""
	if len(set) > 0 {
		l.answer = answer[0]
	}
}

// check notes that the settings are not what they were.
func (l *lasting) check(answer []string) error {
	if len(answer) == 0 || answer[0] == l.answer {
		return nil
	}
	l.forget()
	return errUnsettled
}
