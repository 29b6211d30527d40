// Package kinds has the SQL of the kinds of locks that are clients of the others: texts, and no
// branches. Each kind has a file of its own.
package kinds

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// argument stands in a text in front of the number of one. No name of a table has it.
const argument = "\x00"

// at is a time of that many microseconds since the Unix epoch.
func at(micros string) string {
	return "(TIMESTAMP '1970-01-01 00:00:00' + INTERVAL " + micros + " MICROSECOND)"
}

func micros(time string) string { return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', " + time + ")" }

// of is a query about the table {}, with $1 and so on for its arguments; $[ begins a path of JSON.
// NOW is the same in all of a statement: the time at which it began.
func of(table, text string) dialects.Query {
	text = strings.NewReplacer("$[", "$[", "$", argument, "{}", table, "NOW", "UTC_TIMESTAMP(6)").Replace(text)
	return dialects.Query{SQL: text, Table: table}
}

func reading(table, text string) dialects.Query {
	q := of(table, text)
	q.Reads = true
	return q
}

// sweep deletes rows, known by their key, whose time is long ago: see dialects.OnceSQL. Each part
// names its index: the server would read all of a small table otherwise, and would lock what it
// reads.
func sweep(table, key, time string) dialects.Query {
	old := " FROM {} FORCE INDEX (" + time + ") WHERE " + time + " >= " + at("$1")
	return of(table, sqltext.OnMariaDB(sqltext.SomeWait)+"DELETE gone FROM (SELECT "+key+" AS it"+old+" AND "+time+
		" < NOW - INTERVAL $2 MICROSECOND ORDER BY "+time+" LIMIT $3 FOR UPDATE SKIP LOCKED) AS old "+
		"STRAIGHT_JOIN {} AS gone FORCE INDEX (PRIMARY) ON gone."+key+" = old.it;\n"+
		"SELECT CONCAT_WS(' ', ROW_COUNT(), (SELECT "+micros("MIN("+time+")")+old+"))")
}

// Of are the texts for a lock table.
func Of(table string, galera bool) (k dialects.Kinds, err error) {
	beside, err := sqltext.Beside(table)
	ping := "SELECT IF(" + sqltext.Writable + ", '', CONCAT('the server ', @@hostname, ':', @@port, ' is read_only, " +
		"and takes no writes')) FROM {} LIMIT 1"
	return dialects.Kinds{
		Ping: reading(table, ping), Certified: galera,
		Once: onceOf(beside(locktable.Markers)), Claims: claimsOf(beside(locktable.Claims), galera),
		Permits: permitsOf(beside(locktable.Permits), strconv.Itoa(locktable.QueuePermit)),
		Leaders: leadersOf(beside(locktable.Leaders)),
	}, err
}

// StatementsOf are those of a query, with its arguments as literals.
func StatementsOf(q dialects.Query) ([]string, error) {
	var with []string
	for i, arg := range q.Args {
		literal, err := literalOf(arg)
		if err != nil {
			return nil, err
		}
		with = append(with, argument+strconv.Itoa(i+1), literal)
	}
	statements := strings.Split(q.SQL, ";\n")
	for i, text := range statements {
		statements[i] = strings.NewReplacer(with...).Replace(text)
	}
	return statements, nil
}

func literalOf(arg any) (string, error) {
	switch arg := arg.(type) {
	case int64:
		return strconv.FormatInt(arg, 10), nil
	case []byte:
		return fmt.Sprintf("x'%x'", arg), nil
	case string:
		return sqltext.Literal(dialects.Value{Text: arg, Binary: !utf8.ValidString(arg)})
	}
	return "", fmt.Errorf("bug: an argument of type %T", arg)
}
