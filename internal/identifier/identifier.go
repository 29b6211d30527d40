// Package identifier quotes the names of tables and columns.
package identifier

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// isPlain tells whether a part needs no quotes: it consists of letters and _, and behind the first
// character also of digits and $.
func isPlain(part string) bool {
	for i, r := range part {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || r != '$' && !unicode.IsNumber(r)) {
			return false
		}
	}
	return part != ""
}

// further are parts that are not plain: in quotes, or without any, and the dot behind them.
var further = map[rune]*regexp.Regexp{
	'"': regexp.MustCompile(`^(?:"((?:[^"]|"")+)"|([^."'` + "`" + `]+))(\.|$)`),
	'`': regexp.MustCompile("^(?:`((?:[^`]|``)+)`|([^.\"'`]+))(\\.|$)"),
}

// Quote turns a name as its user spells it into quoted SQL. Parts are separated by dots. Each is
// plain or in quotes, where a doubled quote stands for one. Fold is applied to plain parts, as the
// database does to unquoted names. A part without quotes that is no plain SQL name is taken to the
// letter. A name with more than maxParts parts, or one that cannot be quoted, is an error.
func Quote(name string, quote rune, fold func(string) string, maxParts int) (string, error) {
	if !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("invalid name %.100q: it is not valid UTF-8 text without NUL", name)
	}
	var quoted strings.Builder
	parts := 0
	for rest, more := name, true; more; parts++ {
		part, after, dot := strings.Cut(rest, ".")
		if isPlain(part) {
			part = fold(part)
		} else if other := further[quote].FindStringSubmatch(rest); other != nil {
			part, after, dot = other[1]+other[2], rest[len(other[0]):], other[3] != ""
		} else {
			return "", fmt.Errorf("invalid name %.100q: a part is empty, or a quote %c does not open, close and "+
				"double around the whole of it", name, quote)
		}
		if parts > 0 {
			quoted.WriteByte('.')
		}
		quoted.WriteString(string(quote) + part + string(quote))
		rest, more = after, dot
	}
	if parts > maxParts {
		return "", fmt.Errorf("invalid name %.100q: it has %d parts, and makes sense with %d at most", name, parts,
			maxParts)
	}
	return quoted.String(), nil
}

// Lower folds a part as PostgreSQL does: A to Z alone. (In a database with an encoding of one byte
// for each character it may fold others too, by its locale.)
func Lower(part string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, part)
}
