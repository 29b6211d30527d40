package doctor

import (
	"regexp"
	"slices"
	"strings"
)

// FixKind says what a Fix is made of.
type FixKind string

// The kinds of fixes. SQL can be run as it is, all of it at once, by the administrator in the
// database of the lock table: each line ends a statement or is a comment, and a comment says what
// has to be done besides. What would destroy something, or move clients, is none of it, but advice:
// there a person must decide first. So is ALTER SYSTEM, which a transaction refuses, and with it
// all that is run at once.
const (
	SQL    FixKind = "sql"
	Shell  FixKind = "shell"  // a command
	Config FixKind = "config" // lines of a configuration file, below a comment that says of which
	Advice FixKind = "advice" // words, or statements below words
)

// Fix repairs what was found. It is empty where there is nothing to repair.
type Fix struct {
	Text string  `json:"fix,omitempty"`
	Kind FixKind `json:"fix_kind,omitempty"`
}

func statements(texts ...string) Fix { return Fix{Kind: SQL, Text: strings.Join(texts, ";\n") + ";"} }

// tableWait limits how long a session waits for a table, and lifts that again.
type tableWait struct{ limit, lift string }

var (
	postgresWait = tableWait{"SET lock_timeout = '3s'", "RESET lock_timeout"}
	mysqlWait    = tableWait{"SET lock_wait_timeout = 3", "SET lock_wait_timeout = DEFAULT"}
)

// exclusively runs statements that want the lock table for themselves. They wait behind every lock
// that is held, and all new locks behind them, so they rather fail soon. A pooler may give the
// session to others, so the limit does not stay.
func (w tableWait) exclusively(texts ...string) Fix {
	return statements(slices.Concat([]string{w.limit}, texts, []string{w.lift})...).besides(
		"if it fails, a lock was held for that long: try again")
}

// besides adds what has to be done when the statements were run.
func (f Fix) besides(words string) Fix {
	f.Text += " -- " + words
	return f
}

func command(text string) Fix { return Fix{Kind: Shell, Text: text} }

// configuration are lines of a file; where says of which.
func configuration(where string, lines ...string) Fix {
	return Fix{Kind: Config, Text: "# in " + where + "\n" + strings.Join(lines, "\n")}
}

func advice(words string) Fix { return Fix{Kind: Advice, Text: words} }

// only are statements to be run when what the words say is true, or done.
func (f Fix) only(words string) Fix { return advice("-- " + words + "\n" + f.Text) }

// install is the command that makes the lock table.
func install(table string) string { return "txlock install" + TableFlag(table) }

// plainWord is what no shell takes for anything else.
var plainWord = regexp.MustCompile(`^[\w.]+$`)

// TableFlag names the lock table to the command, where that is necessary, as a shell takes it.
func TableFlag(table string) string {
	switch {
	case table == DefaultTable:
		return ""
	case plainWord.MatchString(table):
		return " --table " + table
	}
	return " --table '" + strings.ReplaceAll(table, "'", `'\''`) + "'"
}

// DefaultTable is that of txlock.New.
const DefaultTable = "txlock_slots"

// renewal takes away by drop what stands in the lock table's place, and Install cannot complete.
func renewal(drop, table string) Fix {
	fix := statements(drop).only("stop all clients first")
	fix.Text += "\n-- then, on a shell: " + install(table)
	return fix
}

// permission has somebody make the lock table who lacks what grants grant, or has its owner make
// it.
func permission(table string, grants ...string) Fix {
	fix := statements(grants...)
	fix.Text += "\n-- then, on a shell: " + install(table) +
		"\n-- or have an administrator run what this prints: txlock schema" + TableFlag(table)
	return fix
}
