// Package sqltext is the SQL that locks and pictures of locks have in common: scripts and their
// literals, the names of tables, and by what a lock is known in the server's views. It knows no
// connection.
package sqltext

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Script is what one round trip carries. Texts are few and constant, so that prepared statements
// serve them. What varies is in the arguments, which are text: PostgreSQL infers a parameter's type
// from the column that it is compared with.
type Script []Statement

// Statement is one of them, with $1 and so on for its arguments. It says what a sender would else
// have to read in its text. That is sent as it is: whoever makes one of the library's own has it
// [identifier.Qualified].
type Statement struct {
	SQL  string
	Args []any // strings, unless it is the caller's

	Silent bool // it returns no rows, or none that anybody reads
	Opens  bool // what follows in the script may wait, and can be undone once it has run

	Work bool  // it is a statement of the caller's, not the library's own
	Into []any // where its first row goes; nil: nowhere
}

// With is a statement with arguments.
func With(sql string, args ...any) Statement { return Statement{SQL: sql, Args: args} }

// Silent is a statement that returns no rows.
func Silent(sql string, args ...any) Statement { return Statement{SQL: sql, Args: args, Silent: true} }

// Text is a script as one query without arguments: they stand in the text as literals. Quotes and
// quoted names are left as they are.
func (s Script) Text() (string, error) {
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

func (s Statement) writeTo(b *strings.Builder) error {
	text := s.SQL
	literals, err := s.literals()
	if err != nil {
		return err
	}
	var quote byte // that is open
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote != 0:
			if c == quote { // a doubled one opens again at once
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '$' && len(literals) > 0:
			end := i + 1
			for end < len(text) && text[end] >= '0' && text[end] <= '9' {
				end++
			}
			number, err := strconv.Atoi(text[i+1 : end])
			if err != nil || number < 1 || number > len(literals) {
				return fmt.Errorf("bug: no argument for %s in %s", text[i:end], text)
			}
			b.WriteString(literals[number-1])
			i = end - 1
			continue
		}
		b.WriteByte(c)
	}
	return nil
}

// literals are the arguments as they stand in a text.
func (s Statement) literals() ([]string, error) {
	literals := make([]string, len(s.Args))
	for i, arg := range s.Args {
		text := arg.(string)
		if strings.ContainsRune(text, 0) {
			return nil, errors.New("text in PostgreSQL is without NUL")
		}
		if literals[i] = Literal(text); strings.Contains(text, `\`) {
			literals[i] = " " + Escaped(text) // the space keeps it apart from a name
		}
	}
	return literals, nil
}

// Literal is a text in quotes. See [Escaped] for one that may contain a backslash.
func Literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// Escaped is a literal whatever standard_conforming_strings is: newer servers show some bytes of an
// application's name as \x….
func Escaped(text string) string { return "E" + Literal(strings.ReplaceAll(text, `\`, `\\`)) }

// ArrayOf is the text form of an array. Elements are in double quotes, with \ before " and \
// (manual, section 8.15.6).
func ArrayOf[T string | int | int64](elements []T) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, element := range elements {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		b.WriteString(arrayEscapes.Replace(fmt.Sprint(element)))
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

var arrayEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// Milliseconds is a duration as settings take it, rounded up.
func Milliseconds(d time.Duration) string {
	return strconv.FormatInt((d+time.Millisecond-1).Milliseconds(), 10) + "ms"
}
