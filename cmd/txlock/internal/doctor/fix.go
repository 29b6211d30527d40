package doctor

import (
	"regexp"
	"slices"
	"strings"
)

// FixKind says what a Fix is made of.
type FixKind string

// The kinds of fixes. The administrator can run all SQL as it is, at once, in the database of the
// lock table: each line ends a statement or is a comment, and a comment says what else to do. A
// statement that would destroy something, or move clients, is advice instead, because a person must
// decide first.
const (
	SQL    FixKind = "sql"
	Shell  FixKind = "shell"  // a command
	Config FixKind = "config" // lines of a configuration file, below a comment that names it
	Advice FixKind = "advice" // words, or statements below words
)

// Fix repairs what was found. It is empty if there is nothing to repair.
type Fix struct {
	Text string  `json:"fix,omitempty"`
	Kind FixKind `json:"fix_kind,omitempty"`
}

func statements(texts ...string) Fix { return Fix{Kind: SQL, Text: strings.Join(texts, ";\n") + ";"} }

// tableWait holds the statements that limit how long a session waits for a table, and that lift the
// limit.
type tableWait struct{ limit, lift string }

var (
	postgresWait = tableWait{"SET lock_timeout = '3s'", "RESET lock_timeout"}
	mysqlWait    = tableWait{"SET lock_wait_timeout = 3", "SET lock_wait_timeout = DEFAULT"}
)

// exclusively is for statements that need the lock table for themselves. They wait behind every
// held lock, and all new locks wait behind them. So it is better that they fail soon. The limit is
// lifted again, because a pooler may give the session to others.
func (w tableWait) exclusively(texts ...string) Fix {
	return statements(slices.Concat([]string{w.limit}, texts, []string{w.lift})...).besides(
		"if it fails, a lock was held for that long: try again")
}

// besides adds what else to do after the statements.
func (f Fix) besides(words string) Fix {
	f.Text += " -- " + words
	return f
}

func command(text string) Fix { return Fix{Kind: Shell, Text: text} }

// configuration returns lines for a file, and where names the file.
func configuration(where string, lines ...string) Fix {
	return Fix{Kind: Config, Text: "# in " + where + "\n" + strings.Join(lines, "\n")}
}

func advice(words string) Fix { return Fix{Kind: Advice, Text: words} }

// only returns statements that are right only if the words are true, or once they are done.
func (f Fix) only(words string) Fix { return advice("-- " + words + "\n" + f.Text) }

// install is the command that creates the lock table.
func install(table string) string { return "txlock install" + TableFlag(table) }

// plainWord matches what a shell takes literally.
var plainWord = regexp.MustCompile(`^[\w.]+$`)

// TableFlag is the flag that names the lock table, quoted for a shell. It is empty for the default.
func TableFlag(table string) string {
	switch {
	case table == DefaultTable:
		return ""
	case plainWord.MatchString(table):
		return " --table " + table
	}
	return " --table '" + strings.ReplaceAll(table, "'", `'\''`) + "'"
}

// DefaultTable is the default of txlock.New.
const DefaultTable = "txlock_slots"

// renewal replaces a table that Install cannot complete: drop removes it first.
func renewal(drop, table string) Fix {
	fix := statements(drop).only("stop all clients first")
	fix.Text += "\n-- then, on a shell: " + install(table)
	return fix
}

// permission lets a user who lacks the grants create the lock table, or has an administrator create
// it.
func permission(table string, grants ...string) Fix {
	fix := statements(grants...)
	fix.Text += "\n-- then, on a shell: " + install(table) +
		"\n-- or have an administrator run what this prints: txlock schema" + TableFlag(table)
	return fix
}
