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

	Silent bool // it returns no rows, or none that anybody reads
	Opens  bool // what follows in the script may wait, and can be undone once it has run

	Work *Work // it is a statement of the caller's; nil: the library's own
}

// Work is what a statement of the caller's has besides its text.
type Work struct {
	Args []any // in the place of Statement.Args, as the client library takes them
	Into []any // where the first row goes; nil: nowhere
}

// With is a statement with arguments.
func With(sql string, args ...string) Statement { return Statement{SQL: sql, Args: args} }

// Silent is a statement that returns no rows.
func Silent(sql string, args ...string) Statement {
	return Statement{SQL: sql, Args: args, Silent: true}
}

// Values are the arguments as client libraries take them.
func (s Statement) Values() []any {
	if s.Work != nil {
		return s.Work.Args
	}
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

// Block is a script as one statement, which shows no answers.
func (s Script) Block() (string, error) {
	body := make(Script, len(s))
	for i := range s {
		text, err := s[i : i+1].Text()
		if err != nil {
			return "", err
		}
		body[i] = With("execute $1", text)
	}
	text, err := body.Text()
	if err != nil {
		return "", err
	}
	return Script{With("do $1", "begin "+text+"; end")}.Text()
}

func (s Statement) writeTo(b *strings.Builder) error {
	literals, err := s.literals()
	text := s.Sent()
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
		if strings.ContainsRune(arg, 0) {
			return nil, errors.New("text in PostgreSQL is without NUL")
		}
		literals[i] = inText(arg)
	}
	return literals, nil
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
