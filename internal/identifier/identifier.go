// Package identifier quotes the names of tables and columns.
package identifier

import (
	"fmt"
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

// Quote turns a name as its user spells it into quoted SQL. Parts are separated by dots. Each is
// plain or in quotes, where a doubled quote stands for one. Fold is applied to plain parts, as the
// database does to unquoted names. A part without quotes that is no plain SQL name is taken to the
// letter. A name with more than maxParts parts, or one that cannot be quoted, is an error.
func Quote(name string, quote rune, fold func(string) string, maxParts int) (string, error) {
	if isPlain(name) { // the usual one: a single part
		return string(quote) + fold(name) + string(quote), nil
	}
	invalid := func(reason string) (string, error) {
		return "", fmt.Errorf("invalid name %.100q: %s", name, reason)
	}
	if !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return invalid("it is not valid UTF-8 text without NUL")
	}
	var parts []string
	for rest := name; ; {
		part, after, quoted, ok := cutPart(rest, quote)
		switch {
		case !ok:
			return invalid(fmt.Sprintf("a quote %c opens, closes and doubles around a whole part, or does not occur",
				quote))
		case part == "":
			return invalid("it has an empty part")
		case !quoted && isPlain(part):
			part = fold(part)
		}
		doubled := strings.ReplaceAll(part, string(quote), string(quote)+string(quote))
		parts = append(parts, string(quote)+doubled+string(quote))
		if after == "" {
			break
		}
		rest = after[1:]
	}
	if len(parts) > maxParts {
		return invalid(fmt.Sprintf("it has %d parts, at most %d make sense here", len(parts), maxParts))
	}
	return strings.Join(parts, "."), nil
}

// cutPart cuts the first part off name. after is empty, or begins with the dot that separates the
// next part.
func cutPart(name string, quote rune) (part, after string, quoted, ok bool) {
	if !strings.HasPrefix(name, string(quote)) {
		end := strings.IndexByte(name, '.')
		if end < 0 {
			end = len(name)
		}
		part = name[:end]
		return part, name[end:], false, !strings.ContainsAny(part, "\"`'")
	}
	var text strings.Builder
	for rest := name[1:]; ; {
		end := strings.IndexRune(rest, quote)
		if end < 0 {
			return "", "", true, false
		}
		text.WriteString(rest[:end])
		rest = rest[end+1:]
		if !strings.HasPrefix(rest, string(quote)) {
			return text.String(), rest, true, rest == "" || rest[0] == '.'
		}
		text.WriteRune(quote)
		rest = rest[1:]
	}
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
