package sqltext

import (
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/identifier"
)

// QuoteTable quotes the name of a table as its user spells it, with or without that of a database.
func QuoteTable(name string) (string, error) { return quote(name, 2) }

// QuoteColumn quotes the name of a column as its user spells it.
func QuoteColumn(name string) (string, error) { return quote(name, 1) }

func quote(name string, maxParts int) (string, error) {
	return identifier.Quote(name, '`', func(plain string) string { return plain }, maxParts)
}

// Beside names the tables beside a lock table, quoted. The server refuses names that are too long.
func Beside(table string) (beside func(suffix string) string, err error) {
	quoted, err := QuoteTable(table)
	stem := strings.TrimSuffix(quoted, "`")
	return func(suffix string) string { return stem + suffix + "`" }, err
}

// Table is a table as the server's views name it.
type Table struct{ Database, Name string }

// TableOf reads a name in backquotes. Without a database of its own the table is in that one.
func TableOf(quoted, database string) Table {
	name, rest := Unquoted(strings.TrimPrefix(quoted, "`"), '`')
	if further, qualified := strings.CutPrefix(rest, ".`"); qualified {
		database = name
		name, _ = Unquoted(further, '`')
	}
	return Table{database, name}
}

// Is is the condition that two columns name the table, whose names must be valid UTF-8. The bare
// columns let the server look it up.
func (t Table) Is(database, name string) string {
	first, _ := Literal(dialects.Value{Text: t.Database})
	second, _ := Literal(dialects.Value{Text: t.Name})
	return database + " = " + first + " AND " + name + " = " + second
}

// Unquoted is the text before the quote that ends it, which is not doubled, and the rest behind it.
func Unquoted(text string, quote byte) (inside, rest string) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == quote {
			if i++; i == len(text) || text[i] != quote {
				return b.String(), text[i:]
			}
		}
		b.WriteByte(text[i])
	}
	return b.String(), ""
}
