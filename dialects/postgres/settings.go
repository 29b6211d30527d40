package postgres

import (
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/label"
)

// settingsOf are two statements. Set prepares the wait. Restore gives back what must not outlive
// it, because further statements of the same transaction follow.
func settingsOf(request dialects.Request, on terms) (set, restore sqltext.Statement) {
	var columns, back []string
	until := func(value time.Duration) string { return set.Bind(sqltext.Milliseconds(value)) }
	keepAndSet := func(setting, column string) {
		kept := "txlock." + setting
		columns = append(columns, sqltext.Set(kept, "current_setting('"+setting+"')"), column)
		back = append(back, sqltext.Set(setting, "current_setting('"+kept+"')"))
	}
	if on.as == owner {
		columns = []string{client.LeaseSQL(until(request.Lease), until(client.ClientCheck))}
	}
	switch {
	case on.isShort(request): // its own statement does the rest
	case on.as == owner:
		columns = append(columns, showSQL(set.Bind(labelOf(request))))
		if on.mark != "" {
			columns = append(columns, sqltext.Set(client.MarkSetting, set.Bind(on.mark)))
		}
	case request.Try: // see passedLabel, and permitStatement
	case on.as == guest:
		columns = []string{alsoSQL(set.Bind(furtherLabelOf(request)))}
	default:
		const check = "client_connection_check_interval"
		keepAndSet(check, sqltext.Set(check, until(client.ClientCheck)))
		keepAndSet("application_name", showSQL(set.Bind(labelOf(request))))
	}
	if on.limit > 0 {
		keepAndSet("lock_timeout", sqltext.Set("lock_timeout", until(on.limit)))
	}
	if columns != nil {
		set.SQL = "select " + strings.Join(columns, ", ")
	}
	if back != nil {
		restore.SQL = "select " + strings.Join(back, ", ")
	}
	return set, restore
}

// A session shows its label behind the application's name, as long as the transaction lasts: every
// role sees that name in pg_stat_activity. The prepared statements do not show what they lock. The
// server cuts names at 63 bytes. The last 13 are kept for a renewal, see label.Since.
const nameSQL = "current_setting('application_name')"

// showSQL shows a label.
func showSQL(argument string) string {
	return "set_config('application_name', left(left(" + nameSQL + ", 20) || " + argument + ", 50), true)"
}

func labelOf(request dialects.Request) string { return label.Begin + label.Of(request) }

// alsoSQL shows a further lock of the same transaction, if there is room. The rollback to a
// savepoint takes it back.
func alsoSQL(argument string) string {
	longer := nameSQL + " || " + argument + "::text"
	return "set_config('application_name', case when length(" + longer + ") <= 50 then " + longer + " else " + nameSQL +
		" end, true)"
}

func furtherLabelOf(request dialects.Request) string { return " " + label.Of(request) }
