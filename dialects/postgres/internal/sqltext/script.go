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
// have to read in its text.
type Statement struct {
	SQL  string
	Args []string

	Silent bool // it returns no rows
	Opens  bool // what follows in the script may wait, and can be undone once it has run
	Idles  bool // it does nothing but end the snapshot of the statement before
}

// With is a statement with arguments.
func With(sql string, args ...string) Statement { return Statement{SQL: sql, Args: args} }

// Silent is a statement that returns no rows.
func Silent(sql string, args ...string) Statement {
	return Statement{SQL: sql, Args: args, Silent: true}
}

// Texts are the arguments as the protocol takes them.
func (s Statement) Texts() [][]byte {
	texts := make([][]byte, len(s.Args))
	for i, arg := range s.Args {
		texts[i] = []byte(arg)
	}
	return texts
}

// Values are the arguments as client libraries take them.
func (s Statement) Values() []any {
	values := make([]any, len(s.Args))
	for i, arg := range s.Args {
		values[i] = arg
	}
	return values
}

// Bind adds an argument, and returns its placeholder.
func (s *Statement) Bind(value string) string {
	s.Args = append(s.Args, value)
	return "$" + strconv.Itoa(len(s.Args))
}

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
	var quote byte // that is open
	for i := 0; i < len(s.SQL); i++ {
		c := s.SQL[i]
		switch {
		case quote != 0:
			if c == quote { // a doubled one opens again at once
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '$' && len(s.Args) > 0:
			end := i + 1
			for end < len(s.SQL) && s.SQL[end] >= '0' && s.SQL[end] <= '9' {
				end++
			}
			number, err := strconv.Atoi(s.SQL[i+1 : end])
			if err != nil || number < 1 || number > len(s.Args) {
				return fmt.Errorf("bug: no argument for %s in %s", s.SQL[i:end], s.SQL)
			}
			text := s.Args[number-1]
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
		return " " + Escaped(text)
	}
	return Literal(text)
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
