package sqltext

import (
	"strings"
)

// Variable is one of the session's, which shows its label in two places. The process list has it
// in a comment of the locking statement while that waits. Once the lock is granted,
// performance_schema shows it in this variable. The variable is no promise: on a pool of Open it
// outlives the lock. Setting it costs a few microseconds, so it is not set where performance_schema
// is off.
const Variable = "txlock"

// CommentMark begins the comments of txlock's statements. Behind it is a label, or a purpose.
const CommentMark = "/* txlock "

// Comment is the comment of a locking statement. Tag names the statement in the process list.
func Comment(label, tag string) string { return CommentMark + tag + label + " */ " }

// LabelIn is the label in a statement's comment, or empty.
func LabelIn(statement string) string {
	_, comment, found := strings.Cut(statement, CommentMark)
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
