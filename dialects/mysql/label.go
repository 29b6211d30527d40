package mysql

import (
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// A session shows its label in two places. The process list has it in a comment of the locking
// statement while that waits. Once the lock is granted, performance_schema shows it in this variable
// of the session. The variable is no promise: on a pool of Open it outlives the lock. Setting it
// costs a few microseconds, so it is not set where performance_schema is off.
const variable = "txlock"

const (
	// commentMark begins the comments of txlock's statements. Behind it is a label, or a purpose.
	commentMark = "/* txlock "
	pingMark    = commentMark + "ping */ "
	probeMark   = commentMark + "probe */ "
)

// commentOf is the comment of a locking statement. Labels have no * and no quotes.
func commentOf(request dialects.Request, tag string) string {
	if tag != "" {
		tag += " "
	}
	return commentMark + tag + label.Process + " " + label.Of(request) + " */ "
}

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

// showing is what a locking statement does for the variable.
type showing int

const (
	inComment showing = iota // nothing: the session is the caller's
	asFirst                  // sets it
	asFurther                // adds to it
)

// value is the variable's new value. SYSDATE is the time at which a row is locked, NOW that at which
// the statement began to wait.
func (s showing) value(request dialects.Request) string {
	before := "'" + label.Process + " "
	if s == asFurther {
		before = "@" + variable + ", ' "
	}
	return "CONCAT(" + before + label.Of(request) + "@', UNIX_TIMESTAMP(SYSDATE(3)))"
}

// into tells whether the locking statement itself sets the variable. That costs the server less than
// a result set, and does where nothing but the grant of one slot is asked for.
func (s showing) into(request dialects.Request) bool {
	return s != inComment && request.Slots > 0 && len(request.Values) == 1 && request.Fence == ""
}

// behind sets the variable behind any other locking statement.
func (s showing) behind(request dialects.Request) string {
	return "; SET @" + variable + " = " + s.value(request)
}

// announceSQL is an assignment that travels with the settings, before the lock.
func announceSQL(request dialects.Request) string {
	return "@" + variable + " = '" + label.Process + " " + label.Of(request) + "'"
}
