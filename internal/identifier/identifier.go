// Package identifier quotes the names of tables and columns, and keeps others' names out of a text.
package identifier

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// parts are the first part of a name, in quotes or without, and the dot behind it.
var parts = map[rune]*regexp.Regexp{
	'"': regexp.MustCompile(`^(?:"((?:[^"]|"")+)"|([^."'` + "`" + `]+))(\.|$)`),
	'`': regexp.MustCompile("^(?:`((?:[^`]|``)+)`|([^.\"'`]+))(\\.|$)"),
}

// plain is a part that PostgreSQL folds: it needs no quotes.
var plain = regexp.MustCompile(`^[\pL_][\pL\pN_$]*$`)

// Quote turns a name as its user spells it into quoted SQL. Parts are separated by dots. In quotes
// a doubled quote stands for one. Where quote is a double quote, parts that need none are folded as
// by PostgreSQL; other parts without quotes are taken to the letter. A name with more than maxParts
// parts, or one that cannot be quoted, is an error.
func Quote(name string, quote rune, maxParts int) (string, error) {
	if !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("invalid name %.100q: it is not valid UTF-8 text without NUL", name)
	}
	var quoted []string
	for rest, more := name, true; more; {
		match := parts[quote].FindStringSubmatch(rest)
		if match == nil {
			return "", fmt.Errorf("invalid name %.100q: a part is empty, or a quote %c does not open, close and "+
				"double around the whole of it", name, quote)
		}
		part := match[1] + match[2]
		if match[1] == "" && quote == '"' && plain.MatchString(part) {
			part = strings.Map(lower, part)
		}
		quoted = append(quoted, string(quote)+part+string(quote))
		rest, more = rest[len(match[0]):], match[3] != ""
	}
	if len(quoted) > maxParts {
		return "", fmt.Errorf("invalid name %.100q: it has %d parts, and makes sense with %d at most", name,
			len(quoted), maxParts)
	}
	return strings.Join(quoted, "."), nil
}

// lower folds as PostgreSQL does: A to Z alone. (In a database with an encoding of one byte for
// each character it may fold others too, by its locale.)
func lower(r rune) rune {
	if 'A' <= r && r <= 'Z' {
		r += 'a' - 'A'
	}
	return r
}

// Qualified is a text of the library's in which each function, type and view of the server's is
// that of pg_catalog. Anybody who may create in the search_path could make another whose parameters
// fit better, and have it run with the rights of whoever locks. Operators are left: their operands
// have just the types of pg_catalog's, which come first, unless the search_path says otherwise; see
// [Needed].
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
	grammar = strings.Fields("coalesce nullif greatest least extract any array exists row operator int bigint " +
		"boolean interval pg_catalog")
)

// Needed is the value of a setting of PostgreSQL's without which texts and names mean something
// else, or "" if it has one that serves: in every spelling, for some poolers send back what a
// client wrote, and also where none is known.
func Needed(setting, value string) string {
	needed := serves[setting]
	if value == "" || needed.values.MatchString(strings.TrimSpace(value)) {
		return ""
	}
	return needed.value
}

var serves = map[string]struct {
	value  string
	values *regexp.Regexp
}{
	"client_encoding":             {"UTF8", regexp.MustCompile(`^(?i)(utf[-_]?8|unicode)$`)},
	"standard_conforming_strings": {"on", regexp.MustCompile(`^(?i)(on|t|tr|tru|true|y|ye|yes|1)$`)},
	// That of the session's temporary tables stands in front, and has no operators.
	"search_path": {"pg_catalog", regexp.MustCompile(`^(pg_temp\w*,)?pg_catalog(,|$)`)},
}
