package mysql

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// role is whose transaction rows are locked in.
type role int

const (
	owner   role = iota // begun for this lock
	guest               // begun for another lock of ours
	foreign             // the caller's
)

// lockSQL is the one statement that locks the rows of request, in the order of its values. It
// returns the values (of slots), or the positions of the values (of other rows), that it locked. A
// statement that puts a value into the session's variable returns nothing: its count of rows tells.
//
// Limit bounds the wait on the server; 0 does not. MySQL reads the optimizer hint (error 3024 when
// the time is over), MariaDB the executable comment (error 1969). Each takes the other's for a
// plain comment. innodb_lock_wait_timeout would not do: it counts whole seconds, and no hint of
// MySQL's changes it. With patient, on MariaDB the statement sets that variable so high that it
// does not end the wait.
func lockSQL(request dialects.Request, clause string, limit time.Duration, comment, into string, patient bool) (
	string, error,
) {
	selects, err := selectsOf(request, into, " "+mode(request)+clause)
	if err != nil {
		return "", err
	}
	prefix, hint := "", ""
	var settings []string
	switch {
	case clause == sqltext.SkipLocked:
		settings = append(settings, sqltext.SomeWait)
	case patient:
		settings = append(settings, sqltext.LongWait)
	}
	if limit > 0 {
		settings = append(settings, maxTime(limit))
		hint = maxTimeHint(limit)
	}
	if settings != nil {
		prefix = sqltext.OnMariaDB(settings...)
	}
	selects[0] = hint + comment + selects[0]
	if request.Fence != "" && into == "" {
		f, err := fenceOf(request.Fence)
		if err != nil {
			return "", err
		}
		selects = append(selects, f.token())
	}
	return prefix + union(selects), nil
}

// union is the query of several selects, which lack the word SELECT.
func union(selects []string) string {
	if len(selects) == 1 {
		return "SELECT " + selects[0]
	}
	return "(SELECT " + strings.Join(selects, ") UNION ALL (SELECT ") + ")"
}

// maxTime is the limit of a statement on MariaDB, and maxTimeHint the hint for MySQL.
func maxTime(limit time.Duration) string {
	return fmt.Sprintf("max_statement_time=%.3f", limit.Seconds())
}

func maxTimeHint(limit time.Duration) string {
	return fmt.Sprintf("/*+ MAX_EXECUTION_TIME(%d) */ ", limit.Milliseconds())
}

// permitSQL locks the first row of the list that is free, and no other. The list comes first in the
// join, so that each row is looked up by its key, and the LIMIT ends the looking. At REPEATABLE
// READ a range would lock the gaps as well. By the other index, MariaDB would lock more than it
// returns. MySQL wants to know that the list is not to be locked. The hash tells rows of a table
// that was made anew.
func permitSQL(request dialects.Request, comment string) (string, error) {
	table, err := sqltext.QuoteTable(request.Table)
	if err != nil {
		return "", err
	}
	hash, err := sqltext.Literal(dialects.Value{Text: request.AnyOne})
	result := "p.id"
	if err == nil && request.Fence != "" {
		var f fence
		f, err = fenceOf(request.Fence)
		result = f.counted(result)
	}
	rows := make([]string, len(request.Values))
	for i, value := range request.Values {
		rows[i] = value.Text
	}
	return sqltext.OnMariaDB(sqltext.SomeWait) + "SELECT " + comment + result + " FROM JSON_TABLE('[" +
		strings.Join(rows, ",") + "]', '$[*]' COLUMNS (id INT PATH '$')) AS list STRAIGHT_JOIN " + table +
		" AS p FORCE INDEX (PRIMARY) ON p.id = list.id WHERE p.hash = " + hash +
		" LIMIT 1 FOR UPDATE /*!80001 OF p */" +
		sqltext.SkipLocked, err
}

const (
	wait   = ""
	nowait = " NOWAIT"
)

// existSQL reads which rows of request exist, without locking. It returns what lockSQL does.
func existSQL(request dialects.Request) (string, error) {
	request.Shared = false
	selects, err := selectsOf(request, "", "")
	if err != nil {
		return "", err
	}
	return union(selects), nil
}

// selectsOf are the queries, without the word SELECT, that together find the rows of request.
//
// InnoDB locks what it reads, not what a statement returns. So each query must find its rows by an
// index and read nothing else. Slots have a primary key that can be forced. The index of a caller's
// table has no known name, and the server may read all of a small table for an IN list: hence one
// look-up for each value.
//
// FOR UPDATE by a secondary index locks the row itself as well. A shared lock does so only when the
// query reads a column that is not in that index; else a writer that finds the row by its primary
// key would have it at the same time. Hence a query inside that reads all columns. The LIMIT keeps
// the server from merging the two.
func selectsOf(request dialects.Request, into, locking string) ([]string, error) {
	table, err := sqltext.QuoteTable(request.Table)
	if err != nil {
		return nil, err
	}
	column, err := sqltext.QuoteColumn(request.Column)
	if err != nil {
		return nil, err
	}
	if request.Slots > 0 {
		return []string{slotsSelect(table, column, request, into) + locking}, nil
	}
	literals := make([]string, len(request.Values))
	for i, value := range request.Values {
		if literals[i], err = sqltext.Literal(value); err != nil {
			return nil, dialects.RefusedError{Err: fmt.Errorf("value %.100q of %s: %w", value.Text, column, err)}
		}
	}
	selects := make([]string, len(literals))
	for i, text := range literals {
		result := strconv.Itoa(i)
		found := fmt.Sprintf("%s WHERE %s = %s%s", table, column, text, andWritable(request))
		if request.Shared {
			found = fmt.Sprintf("(SELECT * FROM %s LIMIT %d%s) AS whole", found, uint64(math.MaxUint64), locking)
		} else {
			found += locking
		}
		selects[i] = result + " FROM " + found
	}
	return selects, nil
}

func slotsSelect(table, column string, request dialects.Request, into string) string {
	result := column
	if into != "" {
		result = into + " INTO @" + sqltext.Variable
	}
	condition := andWritable(request)
	if len(request.Values) == 1 { // a look-up by the primary key takes half the server's time of a range
		return result + " FROM " + table + " WHERE " + column + " = " + request.Values[0].Text + " AND slots = " +
			strconv.Itoa(request.Slots) + condition
	}
	numbers := make([]string, len(request.Values))
	for i, value := range request.Values {
		numbers[i] = value.Text
	}
	// In a UNION, MySQL forgets an order without a limit.
	return fmt.Sprintf("%s FROM %s FORCE INDEX (PRIMARY) WHERE %s IN (%s) AND slots = %d%s ORDER BY %s LIMIT %d",
		result, table, column, strings.Join(numbers, ","), request.Slots, condition, column, len(numbers))
}
