package mysql

import (
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// A session shows its label in two places. The process list has it in a comment of the locking
// statement while that waits. Once the lock is granted, performance_schema shows it in this
// variable of the session. The variable is no promise: on a pool of Open it outlives the lock.
// Setting it costs a few microseconds, so it is not set where performance_schema is off.
const variable = "txlock"

const (
	// commentMark begins the comments of txlock's statements. Behind it is a label, or a purpose.
	commentMark = "/* txlock "
	pingMark    = commentMark + "ping */ "
	awaitMark   = commentMark + "probe */ " // of awaitHolder
)

// labelOf is the label of a session that locks the rows of request. Labels have no * and no quotes.
func labelOf(request dialects.Request) string { return label.Begin(request.Behind) + label.Of(request) }

// commentOf is the comment of a locking statement.
func commentOf(label, tag string) string { return commentMark + tag + label + " */ " }

// labelIn is the label in a statement's comment, or empty.
func labelIn(statement string) string {
	_, comment, found := strings.Cut(statement, commentMark)
	if !found {
		return ""
	}
	comment, _, _ = strings.Cut(comment, " */")
	_, label, found := strings.Cut(comment, "#")
	if !found {
		return ""
	}
	return "#" + label
}

// valueOf is the variable's new value, or empty: no session of the caller's has the variable. An
// owner sets it, and a guest adds to it. SYSDATE is the time at which a row is locked, NOW that at
// which the statement began to wait.
func (d *Driver) valueOf(shown string, as role) string {
	before := "'"
	switch {
	case as == foreign, d.mute.Load():
		return ""
	case as == guest:
		_, bracket, _ := strings.Cut(shown, " ") // behind the number of the process
		before, shown = "@"+variable+", ' ", bracket
	}
	return "CONCAT(" + before + shown + "@', UNIX_TIMESTAMP(SYSDATE(3)))"
}

// announceSQL is an assignment that travels with the settings, before the lock.
func announceSQL(request dialects.Request) string {
	return "@" + variable + " = '" + labelOf(request) + "'"
}

// behindSQL shows how many callers wait behind the session now, where the variable is set; else it
// is empty.
func (d *Driver) behindSQL(behind int) string {
	if d.mute.Load() {
		return ""
	}
	return "SET " + pingMark + "@" + variable + " = CONCAT('" + label.Begin(behind) + "', SUBSTRING(@" + variable +
		", LOCATE(' ', @" + variable + ") + 1))"
}
