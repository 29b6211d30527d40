package sqltext

import (
	"fmt"
	"strings"

	"github.com/txlock/txlock/internal/identifier"
	"github.com/txlock/txlock/internal/locktable"
)

// QuoteTable quotes the name of a table as its user spells it, with its schema or without.
func QuoteTable(name string) (string, error) { return quote(name, 2) }

// QuoteColumn quotes the name of a column.
func QuoteColumn(name string) (string, error) { return quote(name, 1) }

func quote(name string, maxParts int) (string, error) {
	return identifier.Quote(name, '"', identifier.Lower, maxParts)
}

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
