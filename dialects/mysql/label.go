package mysql

import (
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// What a session locks is shown to others as dialects.Request.Label spells it: by a comment of the
// locking statement, which the process list has for as long as it waits, and in a variable of the
// session, which performance_schema shows, from when the lock is granted. The variable is no
// promise: on a pool of Open it is left behind when the lock is released. It costs a lock a few
// microseconds, so that it is not set where performance_schema is off.
const variable = "txlock"

const (
	// commentMark begins the comments of txlock's statements: a label, or what else they are for.
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

// labelIn is the label that a statement shows, empty without one.
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
	inComment showing = iota // nothing: the transaction, and its session, are the caller's
	asFirst                  // sets it
	asFurther                // adds to it
)

// value is the variable's new value. SYSDATE is when a row is at hand, and locked: NOW would be
// when the statement began to wait.
func (s showing) value(request dialects.Request) string {
	before := "'" + label.Process + " "
	if s == asFurther {
		before = "@" + variable + ", ' "
	}
	return "CONCAT(" + before + label.Of(request) + "@', UNIX_TIMESTAMP(SYSDATE(3)))"
}

// into tells whether the locking statement itself sets the variable: that of one slot, of which
// nothing else is to be known. It costs the server less than a result set would.
func (s showing) into(request dialects.Request) bool {
	return s != inComment && request.Slots > 0 && len(request.Values) == 1 && request.Fence == ""
}

// behind sets the variable behind any other locking statement.
func (s showing) behind(request dialects.Request) string {
	return "; SET @" + variable + " = " + s.value(request)
}

// announceSQL is an assignment that travels with the settings in front of the lock.
func announceSQL(request dialects.Request) string {
	return "@" + variable + " = '" + label.Process + " " + label.Of(request) + "'"
}
