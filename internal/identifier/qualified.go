package identifier

import (
	"regexp"
	"slices"
	"strings"
)

// Qualified is a text of the library's in which each function, type and view of the server's is
// that of pg_catalog. Anybody who may create in the search_path could make another one whose
// parameters fit better, and have it run with the rights of whoever locks. Operators are left:
// their operands have just the types of pg_catalog's, which come first, unless the search_path says
// otherwise; see [Needed].
//
// A function has its parenthesis right behind it; anything else has a space in between.
func Qualified(text string) string {
	return words.ReplaceAllStringFunc(text, func(word string) string {
		name, calls := strings.CutSuffix(word, "(")
		name, cast := strings.CutPrefix(name, "::")
		switch {
		case strings.ContainsAny(name, `'".`), slices.Contains(grammar, strings.ToLower(name)):
		case cast:
			return "::pg_catalog." + name
		case calls, strings.HasPrefix(name, "pg_"):
			return "pg_catalog." + word
		}
		return word
	})
}

var (
	// words are literals, quoted names, casts, and names.
	words = regexp.MustCompile(`'[^']*'|"[^"]*"|::[a-z_0-9]+|[A-Za-z_$][\w$.]*\(?`)

	// grammar are the words of the language that look like a function, or a type.
	grammar = []string{
		"coalesce", "nullif", "greatest", "least", "extract", "any", "array", "exists", "row", "operator",
		"int", "bigint", "boolean", "interval", "pg_catalog",
	}
)
