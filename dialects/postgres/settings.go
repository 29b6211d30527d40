package postgres

import (
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// settingsOf are two statements. Set prepares the wait. Restore gives back what must not outlive
// it, because further statements of the same transaction follow.
func settingsOf(request dialects.Request, on terms) (set, restore sqltext.Statement) {
	var columns, back []string
	until := func(value time.Duration) string { return set.Bind(sqltext.Milliseconds(value)) }
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
			setSQL("client_connection_check_interval", until(client.ClientCheck)),
		}
	}
	switch {
	case on.as == owner && isShort(request): // its own statement does the rest
	case on.as == owner:
		columns = append(columns, showSQL(set.Bind(labelOf(request))))
		if on.mark != "" {
			columns = append(columns, setSQL(client.MarkSetting, set.Bind(on.mark)))
		}
	case request.Try && request.Permit == nil: // see passedLabel
	case on.as == guest:
		columns = []string{alsoSQL(set.Bind(furtherLabelOf(request)))}
	default:
		const check = "client_connection_check_interval"
		keepAndSet(check, setSQL(check, until(client.ClientCheck)))
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
