package postgres

import (
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

const (
	beginSQL = "begin isolation level read committed read write"

	// Work that sends COMMIT or ROLLBACK itself goes on outside any transaction. There each
	// statement would commit at once and without the lock. So while work runs, the session's
	// default is read only, and only our own BEGIN says READ WRITE. The default must be committed
	// before the work, or a ROLLBACK of the work would undo it. chainSQL commits it and begins the
	// next transaction as the last one was begun. A custom setting keeps the old default: it lives
	// in the session alone.
	//
	// It is set only where the server is the process that the connection was told of. A pooler in
	// between has numbers of its own. It may give the session to another client when this one dies,
	// with all that was set: PgCat, Odyssey and PgDog send ROLLBACK, and no RESET.
	guardSQL = "select set_config('txlock.read_only', current_setting('default_transaction_read_only'), false), " +
		"set_config('default_transaction_read_only', 'on', false) where pg_backend_pid()::text = $1"
	unguardColumn = "case when current_setting('txlock.read_only', true) <> '' then " +
		"set_config('default_transaction_read_only', current_setting('txlock.read_only'), false) || " +
		"set_config('txlock.read_only', '', false) end"

	chainSQL = "commit and chain"

	// restoreSQL undoes guardSQL in a transaction, and leaves an empty one open. It is one query,
	// so that the session is not idle in between.
	restoreSQL = "rollback and chain; select " + unguardColumn + "; commit and chain"
)

var (
	begin  = sqltext.Statement{SQL: beginSQL, Silent: true, Opens: true}
	commit = sqltext.Silent("commit")
)

// markSetting holds the mark: a value that lives as long as the transaction, and that no other has.
const markSetting = "txlock.held"

// proofSQL fails by a division by zero in any transaction but the one that holds the mark. It is
// one statement, because each costs the server as much as a lock. Its failure takes back what it
// has set.
func proofSQL(mark string) string {
	return "select 1 / (current_setting('" + markSetting + "', true) is not distinct from " + mark + ")::int"
}

// commitScript commits only the transaction that holds the mark: in any other, COMMIT is not
// reached. Guarded says that guardSQL may have to be undone.
func commitScript(mark string, guarded bool) sqltext.Script {
	proof := sqltext.With(proofSQL("$1"), mark)
	if guarded {
		proof.SQL += ", " + unguardColumn
	}
	return sqltext.Script{proof, commit}
}

// commitSQL is commitScript as one simple query. It takes the server some 30 µs longer: it parses
// and plans the proof each time.
func commitSQL(mark string) string {
	return proofSQL("'"+mark+"'") + ", " + unguardColumn + "; commit"
}

// clientCheck is how long a dead waiter may stay in the queue.
const clientCheck = 500 * time.Millisecond

// settingsOf are two statements. Set prepares the wait. Restore gives back what must not outlive
// it, because further statements of the same transaction follow.
func settingsOf(request dialects.Request, on terms) (set, restore sqltext.Statement) {
	var columns, back []string
	until := func(value time.Duration) string { return set.Bind(milliseconds(value)) }
	keepAndSet := func(setting, column string) {
		kept := "txlock." + setting
		columns = append(columns, setSQL(kept, "current_setting('"+setting+"')"), column)
		back = append(back, setSQL(setting, "current_setting('"+kept+"')"))
	}
	if on.as == owner && !on.settled {
		// The server ends the session after the lease. Its timer counts idle time; where a client
		// has stopped reading a large result, the server's kernel counts. The server looks now and
		// then whether a waiter's client is still there: otherwise a dead one would stay in the
		// queue until its turn. It starts that timer at the beginning of a statement, so this one
		// must precede the wait.
		lease := until(request.Lease)
		columns = []string{
			setSQL("idle_in_transaction_session_timeout", lease),
			setSQL("tcp_user_timeout", lease),
			setSQL("client_connection_check_interval", until(clientCheck)),
		}
	}
	switch {
	case on.as == owner && isShort(request): // its own statement does the rest
	case on.as == owner:
		columns = append(columns, showSQL(set.Bind(labelOf(request))))
		if on.mark != "" {
			columns = append(columns, setSQL(markSetting, set.Bind(on.mark)))
		}
	case request.Try && request.Permit == nil: // see passedLabel
	case on.as == guest:
		columns = []string{alsoSQL(set.Bind(furtherLabelOf(request)))}
	default:
		keepAndSet("client_connection_check_interval", setSQL("client_connection_check_interval", until(clientCheck)))
		keepAndSet("application_name", showSQL(set.Bind(labelOf(request))))
	}
	if on.limit > 0 {
		keepAndSet("lock_timeout", setSQL("lock_timeout", until(on.limit)))
	}
	if columns != nil {
		set.SQL = "select " + strings.Join(columns, ", ")
	}
	if back != nil {
		restore.SQL = "select " + strings.Join(back, ", ")
	}
	return set, restore
}

// leaseStatement makes a transaction one that ends with its client, as a lock's does.
func leaseStatement(lease time.Duration) sqltext.Statement {
	oneRow := dialects.Request{Lease: lease, Values: make([]dialects.Value, 1)}
	set, _ := settingsOf(oneRow, terms{as: owner})
	return set
}

func setSQL(setting, argument string) string {
	return "set_config('" + setting + "', " + argument + ", true)"
}

// milliseconds is a duration as settings take it, rounded up.
func milliseconds(d time.Duration) string {
	return strconv.FormatInt((d+time.Millisecond-1).Milliseconds(), 10) + "ms"
}
