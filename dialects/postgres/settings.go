package postgres

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
)

// What a session's settings are kept in while txlock changes them. Custom settings live in the
// session alone.
const (
	beginSQL = "begin isolation level read committed read write"

	// In a transaction of our own the server ends the session after the lease, and looks now and
	// then whether the client of a waiter is still there: else one that died would stay in the
	// queue until its turn. The statement must be behind us when the wait begins, for the server
	// starts its timer at the beginning of a statement. The label goes with it.
	leaseSQL = "select set_config('idle_in_transaction_session_timeout', $1, true), " +
		"set_config('client_connection_check_interval', $2, true), " +
		showSQL + "$3" + behindShowSQL

	// Work that sends COMMIT or ROLLBACK itself goes on outside any transaction, where each
	// statement would commit at once and without the lock. So while work runs, the session's
	// default is read only and only our own BEGIN says READ WRITE. The setting must be committed
	// before the work, or the work's own ROLLBACK would undo it: chainSQL does that, and begins the
	// next transaction as the last one was begun. So the session is never idle in between, and a
	// pooler that shares the server's sessions between transactions does not give it away.
	guardSQL = "select set_config('txlock.read_only', current_setting('default_transaction_read_only'), false), " +
		"set_config('default_transaction_read_only', 'on', false)"
	unguardColumns = "set_config('default_transaction_read_only', " +
		"coalesce(nullif(current_setting('txlock.read_only', true), ''), " +
		"current_setting('default_transaction_read_only')), false), set_config('txlock.read_only', '', false)"

	chainSQL = "commit and chain"

	// restoreSQL undoes guardSQL in a transaction, and leaves another, empty one open: one query,
	// for the same reason.
	restoreSQL = "rollback and chain; select " + unguardColumns + "; commit and chain"

	isolationSQL = "current_setting('transaction_isolation') in ('read committed', 'read uncommitted')"
)

// The mark is a setting that lives as long as this transaction, and that no other has.
const heldSetting = "txlock.held"

// marked has a script, whose first statement sets other settings, set the mark as well.
func (s script) marked(mark string) script {
	first := &s[0]
	first.args = append(first.args, mark)
	first.sql += fmt.Sprintf(", set_config('%s', $%d, true)", heldSetting, len(first.args))
	return s
}

// proofSQL fails by a division by zero in any transaction but the one that holds the mark, and
// unguards the session. It is one statement, because each costs the server as much as a lock; its
// failure takes back whatever it has set.
func proofSQL(mark string) string {
	return "select 1 / (current_setting('" + heldSetting + "', true) is not distinct from " + mark + ")::int, " +
		unguardColumns
}

// commitSQL commits only the transaction that holds the mark: in any other COMMIT is not reached.
// One simple query, so that it costs one round trip.
func commitSQL(mark string) string { return proofSQL("'"+mark+"'") + "; commit" }

// clientCheck is how long a dead waiter may stay in the queue.
const clientCheck = 500 * time.Millisecond

// What is set for the wait must not outlive it: the caller's own statements follow in the same
// transaction.
func keep(setting string) string {
	return "set_config('txlock." + setting + "', current_setting('" + setting + "'), true)"
}

func giveBack(setting string) string {
	return fmt.Sprintf("set_config('%s', current_setting('txlock.%[1]s'), true)", setting)
}

// milliseconds is a duration as settings take it, rounded up.
func milliseconds(d time.Duration) string {
	return strconv.FormatInt((d+time.Millisecond-1).Milliseconds(), 10) + "ms"
}

// settingsOf are the statements that set what the wait needs, and restore what must be restored
// behind it.
func settingsOf(request dialects.Request, limit time.Duration, as role) (before, after script) {
	set := statement{}
	var restore []string
	add := func(value string, sql func(argument string) string) {
		separator := ", "
		if set.sql == "" {
			set.sql, separator = "select ", ""
		}
		set.args = append(set.args, value)
		set.sql += separator + sql("$"+strconv.Itoa(len(set.args)))
	}
	bound := func(setting string, value time.Duration) {
		add(milliseconds(value), func(argument string) string {
			return keep(setting) + ", set_config('" + setting + "', " + argument + ", true)"
		})
		restore = append(restore, giveBack(setting))
	}
	switch {
	case as == owner:
		set = statement{leaseSQL, []any{milliseconds(request.Lease), milliseconds(clientCheck), labelOf(request)}}
	case as == guest:
		add(furtherLabelOf(request), alsoSQL)
	case !request.Try:
		bound("client_connection_check_interval", clientCheck)
		add(labelOf(request), func(argument string) string {
			return keep("application_name") + ", " + showSQL + argument + behindShowSQL
		})
		restore = append(restore, giveBack("application_name"))
	}
	if limit > 0 {
		bound("lock_timeout", limit)
	}
	if set.sql != "" {
		before = script{set}
	}
	if len(restore) > 0 {
		after = script{{sql: "select " + strings.Join(restore, ", ")}}
	}
	if as != foreign && !request.Try && !inOne(request, as) && len(turnstilesOf(request)) > 1 {
		note, args := granted(request, as, "$1")
		after = append(after, statement{"select " + note, args})
	}
	return before, after
}
