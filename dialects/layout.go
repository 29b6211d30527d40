package dialects

import (
	"strconv"
	"strings"
)

// Layout is what Install makes: the lock table, and beside it the tables that tokens are drawn
// from, and those of leaders, of markers, of permits and of claims. Who asks for it is about to
// look at the server anew.
type Layout struct {
	Parts  []Part // the lock table first
	Find   string // looks the lock table up: see locktable.Find
	Census string // reads all of it: see locktable.Slots
	// Kinds are the texts for a lock table of that full name, behind Find.
	Kinds func(name string) (Kinds, error)
	// Writers has a line where all nodes of the server's cluster take writes, which says why;
	// empty: that is found out before the first lock.
	Writers string
	// Seed makes the slots that are missing, unless there are some of another number.
	Seed func(slots int) string
	// Together is a Query's text that runs statements, while no other client does.
	Together func(statements ...string) string
}

// Part is what Install makes where it is missing.
type Part struct {
	Table   string
	Missing string // a condition of SQL; it is over when SQL has run
	SQL     string // statements that make it, and do no harm where it is there
}

// Missing is a query whose one line is a number with a bit for each part that is missing.
func (l Layout) Missing() string {
	bits := make([]string, len(l.Parts))
	for i, part := range l.Parts {
		bits[i] = "CASE WHEN " + part.Missing + " THEN " + strconv.Itoa(1<<i) + " ELSE 0 END"
	}
	return "SELECT " + strings.Join(bits, " + ")
}

// Text is all of it as SQL. Semicolons separate the statements.
func (l Layout) Text(slots int) (text string) {
	for _, part := range l.Parts {
		text += part.SQL + ";\n\n"
	}
	return text + l.Seed(slots) + ";\n"
}
