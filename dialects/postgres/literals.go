package postgres

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// textOf is a script as one query without arguments: they stand in the text as literals. Quotes and
// quoted names are left as they are.
func textOf(s script) (string, error) {
	var b strings.Builder
	for i, statement := range s {
		if i > 0 {
			b.WriteString("; ")
		}
		if err := statement.writeTo(&b); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

func (s statement) writeTo(b *strings.Builder) error {
	var quote byte // that is open
	for i := 0; i < len(s.sql); i++ {
		c := s.sql[i]
		switch {
		case quote != 0:
			if c == quote { // a doubled one opens again at once
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '$' && len(s.args) > 0:
			end := i + 1
			for end < len(s.sql) && s.sql[end] >= '0' && s.sql[end] <= '9' {
				end++
			}
			number, err := strconv.Atoi(s.sql[i+1 : end])
			if err != nil || number < 1 || number > len(s.args) {
				return fmt.Errorf("bug: no argument for %s in %s", s.sql[i:end], s.sql)
			}
			text := s.args[number-1]
			if strings.ContainsRune(text, 0) {
				return errors.New("text in PostgreSQL is without NUL")
			}
			b.WriteString(inText(text))
			i = end - 1
			continue
		}
		b.WriteByte(c)
	}
	return nil
}

// inText is a literal whatever standard_conforming_strings is. The space in front keeps it apart
// from a name.
func inText(text string) string {
	if strings.Contains(text, `\`) {
		return " " + escaped(text)
	}
	return literal(text)
}
