package postgres

import (
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// A session shows its label behind the application's name, as long as the transaction lasts: every
// role sees that name in pg_stat_activity. The prepared statements do not show what they lock. The
// server cuts names at 63 bytes. The last 13 are kept for the time of the grant.
const (
	nameSQL = "current_setting('application_name')"

	// grantedSQL notes how long after the begin of the transaction the lock was granted, unless
	// that was at once.
	grantedSQL = "case when clock_timestamp() - now() > interval '5 ms' then " + markSQL + " end"
	markSQL    = "set_config('application_name', " + nameSQL +
		" || '+' || (extract(epoch from clock_timestamp() - now()) * 1000)::bigint || 'ms', true)"
)

// showSQL shows a label.
func showSQL(argument string) string {
	return "set_config('application_name', left(left(" + nameSQL + ", 20) || " + argument + ", 50), true)"
}

func labelOf(request dialects.Request) string { return label.Begin(request.Behind) + label.Of(request) }

// alsoSQL shows a further lock of the same transaction, if there is room. The rollback to a
// savepoint takes it back.
func alsoSQL(argument string) string {
	longer := nameSQL + " || " + argument + "::text"
	return "set_config('application_name', case when length(" + longer + ") <= 50 then " + longer + " else " + nameSQL +
		" end, true)"
}

func furtherLabelOf(request dialects.Request) string { return " " + label.Of(request) }

// granted is a column that notes the grant in a transaction of ours, and its argument. The grant of
// a further lock is noted if that lock is the last that the name shows.
func granted(request dialects.Request, as role, argument string) (column string, args []string) {
	switch as {
	case owner:
		return grantedSQL, nil
	case guest:
		return "case when right(" + nameSQL + ", length(" + argument + "::text)) = " + argument + "::text then " +
			markSQL + " end", []string{furtherLabelOf(request)}
	}
	return "null", nil
}
