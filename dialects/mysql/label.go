package mysql

import (
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/label"
)

// pingMark is the comment of a heartbeat.
const pingMark = sqltext.CommentMark + "ping */ "

// labelOf is the label of a session that locks the rows of request. Labels have no * and no quotes.
func labelOf(request dialects.Request) string { return label.Begin(request.Behind) + label.Of(request) }

// valueOf is the variable's new value, or empty: no session of the caller's has the variable. An
// owner sets it, and a guest adds to it. SYSDATE is the time at which a row is locked, NOW that at
// which the statement began to wait.
func (d *Driver) valueOf(shown string, as role) string {
	before := "'"
	switch {
	case as == foreign, d.pool.Mute():
		return ""
	case as == guest:
		_, bracket, _ := strings.Cut(shown, " ") // behind the number of the process
		before, shown = "@"+sqltext.Variable+", ' ", bracket
	}
	return "CONCAT(" + before + shown + "@', UNIX_TIMESTAMP(SYSDATE(3)))"
}

// announceSQL is an assignment that travels with the settings, before the lock.
func announceSQL(request dialects.Request) string {
	return "@" + sqltext.Variable + " = '" + labelOf(request) + "'"
}

// behindSQL shows how many callers wait behind the session now, where the variable is set; else it
// is empty.
func (d *Driver) behindSQL(behind int) string {
	if d.pool.Mute() {
		return ""
	}
	const shown = "@" + sqltext.Variable
	return "SET " + pingMark + shown + " = CONCAT('" + label.Begin(behind) + "', SUBSTRING(" + shown +
		", LOCATE(' ', " + shown + ") + 1))"
}
