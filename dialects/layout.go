package dialects

import "strings"

// Layout is what Install makes: the lock table, and beside it the tables that tokens are drawn
// from, and those of leaders, of markers, of permits and of claims. Who asks for it is about to
// look at the server anew.
type Layout struct {
	Parts  []Part // the lock table first
	Find   string // looks the lock table up: see locktable.Find
	Census string // reads all of it: see locktable.Census
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
	Missing string // a condition of SQL: it is to be made
	Former  string // a condition of SQL: it is one that version 0.1 has made, and must go first; empty: never
	SQL     string // a statement that makes it, and does no harm where it is there
}

// The states of a part.
const (
	Present = '.'
	Missing = 'm'
	Former  = 'f'
)

// States is a query whose one line has the state of each part.
func (l Layout) States() string {
	states := make([]string, len(l.Parts))
	for i, part := range l.Parts {
		states[i] = "CASE WHEN " + part.Missing + " THEN 'm'"
		if part.Former != "" {
			states[i] += " WHEN " + part.Former + " THEN 'f'"
		}
		states[i] += " ELSE '.' END"
	}
	return "SELECT CONCAT(" + strings.Join(states, ", ") + ")"
}

// Text is all of it as SQL. Semicolons separate the statements.
func (l Layout) Text(slots int) string {
	statements := []string{l.Parts[0].SQL, l.Seed(slots)}
	for _, part := range l.Parts[1:] {
		statements = append(statements, part.SQL)
	}
	return strings.Join(statements, ";\n\n") + ";\n"
}
