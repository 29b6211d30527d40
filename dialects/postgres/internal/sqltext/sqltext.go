// Package sqltext is the SQL that locks and pictures of locks have in common: scripts and literals,
// names of tables, and by what the server's views know a lock.
package sqltext

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/txlock/txlock/internal/identifier"
	"github.com/txlock/txlock/internal/locktable"
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

// Silent is a statement that returns no rows.
func Silent(sql string, args ...any) Statement { return Statement{SQL: sql, Args: args, Silent: true} }

// Text is a script as one query without arguments: they stand in the text as literals. Quotes and
// quoted names are left as they are.
func (s Script) Text() (string, error) {
	var failed error
	texts := make([]string, len(s))
	for i, statement := range s {
		if texts[i] = statement.SQL; len(statement.Args) == 0 {
			continue
		}
		texts[i] = places.ReplaceAllStringFunc(statement.SQL, func(place string) string {
			number, err := strconv.Atoi(strings.TrimPrefix(place, "$"))
			if err != nil { // in quotes
				return place
			}
			text := statement.Args[number-1].(string)
			if strings.ContainsRune(text, 0) {
				failed = errors.New("text in PostgreSQL is without NUL")
			}
			return Literal(text)
		})
	}
	return strings.Join(texts, "; "), failed
}

// places are those of arguments, and quotes and quoted names, where none is one.
var places = regexp.MustCompile(`'[^']*'|"[^"]*"|\$\d+`)

// Literal is a text in quotes, whatever standard_conforming_strings is: newer servers show some
// bytes of an application's name as \x…. The space keeps the E apart from a name in front.
func Literal(text string) string {
	opening := "'"
	if strings.Contains(text, `\`) {
		opening = " E'"
	}
	return opening + literalEscapes.Replace(text) + "'"
}

var literalEscapes = strings.NewReplacer(`\`, `\\`, "'", "''")

// ArrayOf is the text form of an array. Elements are in double quotes, with \ before " and \
// (manual, section 8.15.6).
func ArrayOf[T string | int64](elements []T) string {
	quoted := make([]string, len(elements))
	for i, element := range elements {
		quoted[i] = `"` + arrayEscapes.Replace(fmt.Sprint(element)) + `"`
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

var arrayEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// QuoteTable quotes the name of a table as its user spells it, with its schema or without.
func QuoteTable(name string) (string, error) { return identifier.Quote(name, '"', 2) }

// Tokens is what the name of the sequence ends with that tokens are drawn from. See locktable for
// the tables beside a lock table.
const Tokens = "_tokens"

// Beside names what stands beside a lock table, quoted. The server cuts names at 63 bytes, so a
// longer one is an error: the names must differ.
func Beside(table string) (beside func(suffix string) string, err error) {
	const longest = 63 - len(locktable.Leaders)
	quoted, err := QuoteTable(table)
	stem := strings.TrimSuffix(quoted, `"`)
	if name := stem[strings.LastIndex(stem, `."`)+1:]; len(name) > len(`"`)+longest {
		err = fmt.Errorf("table name %.100s is too long: at most %d bytes, for others are named after it", table,
			longest)
	}
	return func(suffix string) string { return stem + suffix + `"` }, err
}

// NumberOf is the table's number. A prepared statement looks it up anew when the table is made
// anew.
func NumberOf(table string) string {
	quoted, _ := QuoteTable(table) // the row's statement has the error
	return Literal(quoted) + "::pg_catalog.regclass::pg_catalog.oid::int"
}

// Set sets a setting until the end of the transaction.
func Set(setting, argument string) string {
	return "pg_catalog.set_config('" + setting + "', " + argument + ", true)"
}

// Tag begins a query of several statements, and the rest of a comment says whose it is.
const Tag = "/* txlock "
