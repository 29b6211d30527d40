// Package sqltext has the pieces of SQL that locks and pictures of them are made of: names,
// literals, settings, what MariaDB alone reads, and comments in which sessions say what they lock.
package sqltext

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/identifier"
)

const (
	// Sharing locks rows against writers only, as FOR UPDATE does against everybody.
	Sharing = "/*!80001 FOR SHARE */ /*M! LOCK IN SHARE MODE */"
	// SkipLocked goes behind either of them.
	SkipLocked = " SKIP LOCKED"

	// SomeWait goes with SKIP LOCKED. Where innodb_lock_wait_timeout is 0, MariaDB answers error
	// 1180 for a held row and undoes what the transaction has written, which goes on.
	SomeWait = "innodb_lock_wait_timeout=1"
	// LongWait is the most that MariaDB takes: with the sql_mode TRADITIONAL, more is an error.
	LongWait = "innodb_lock_wait_timeout=100000000"

	// Isolation is the variable on MySQL, and on MariaDB, where 11.1 is the first with that name.
	Isolation = "/*!80001 @@session.transaction_isolation */ /*M! @@session.tx_isolation */"

	// AtReadCommitted sets the level at which what is read under a lock is not older than the lock.
	AtReadCommitted = Isolation + " = 'READ-COMMITTED'"

	// Writable is the condition under which a shared lock excludes. A server that is read_only
	// grants it, and refuses FOR UPDATE with error 1290. One with innodb_read_only locks nothing.
	// Text is compared: MySQL has numbers, MariaDB words.
	Writable = "CONCAT(@@read_only, @@innodb_read_only) IN ('00', 'OFFOFF')"
)

// OnMariaDB sets variables for the statement behind it. To MySQL it is a comment.
func OnMariaDB(settings ...string) string {
	if len(settings) == 0 {
		return ""
	}
	return "/*M! SET STATEMENT " + strings.Join(settings, ", ") + " FOR */ "
}

var plainText = regexp.MustCompile(`^[A-Za-z0-9 _.,:;@/#()=+-]*$`)

// Literal is a string literal, also for a number: a number compared with a string column would
// defeat its index. All sql_modes and character sets read hexadecimal alike, and plain text.
func Literal(value dialects.Value) (string, error) {
	switch {
	case value.Binary:
		return fmt.Sprintf("x'%x'", value.Text), nil
	case plainText.MatchString(value.Text):
		return "'" + value.Text + "'", nil
	case !utf8.ValidString(value.Text):
		return "", fmt.Errorf("text is not valid UTF-8; give a []byte for a binary column")
	}
	return fmt.Sprintf("_utf8mb4 x'%x'", value.Text), nil
}

// QuoteTable quotes the name of a table as its user spells it, with or without that of a database.
func QuoteTable(name string) (string, error) { return identifier.Quote(name, '`', 2) }

// QuoteColumn quotes the name of a column as its user spells it.
func QuoteColumn(name string) (string, error) { return identifier.Quote(name, '`', 1) }

// Beside names the tables beside a lock table, quoted. The server refuses names that are too long.
func Beside(table string) (beside func(suffix string) string, err error) {
	quoted, err := QuoteTable(table)
	stem := strings.TrimSuffix(quoted, "`")
	return func(suffix string) string { return stem + suffix + "`" }, err
}

// Table is a table as the server's views name it.
type Table struct{ Database, Name string }

// TableOf reads a name in backquotes, whatever is behind it. Without a database it is in that one.
func TableOf(quoted, database string) Table {
	names := inBackquotes.FindStringSubmatch(quoted)
	if names == nil {
		return Table{database, ""}
	}
	single := strings.NewReplacer("``", "`")
	return Table{cmp.Or(single.Replace(names[1]), database), single.Replace(names[2])}
}

var inBackquotes = regexp.MustCompile("^(?:`((?:[^`]|``)*)`\\.)?`((?:[^`]|``)*)`")

// Is is the condition that two columns name the table, whose names must be valid UTF-8. The bare
// columns let the server look it up. Without a database it is in the session's.
func (t Table) Is(database, name string) string {
	first := "DATABASE()"
	if t.Database != "" {
		first, _ = Literal(dialects.Value{Text: t.Database})
	}
	second, _ := Literal(dialects.Value{Text: t.Name})
	return database + " = " + first + " AND " + name + " = " + second
}

// CommentMark begins the comments of txlock's statements. Behind it is a label, or a purpose.
const CommentMark = "/* txlock "

// Comment is that of a statement, which tag names. Labels have no * and no quotes.
func Comment(label, tag string) string { return CommentMark + tag + label + " */ " }

// LabelIn is the label in a statement's comment, or empty.
func LabelIn(statement string) string {
	_, comment, _ := strings.Cut(statement, CommentMark)
	comment, _, _ = strings.Cut(comment, " */")
	if _, label, found := strings.Cut(comment, "#"); found {
		return "#" + label
	}
	return ""
}
