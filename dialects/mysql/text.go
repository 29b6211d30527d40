package mysql

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
)

// nowait has a lock that is not free fail at once, and draws no token. SKIP LOCKED leaves it out.
const nowait = " NOWAIT"

// lockSQL is the one statement that locks the rows of request, in the order of its values. It
// returns the values (of slots), or the positions of the values (of other rows), that it locked,
// and behind them what a token is made of. On a connection of Open one slot alone is put into a
// variable: the count of rows tells, which is 4 % of a Lock cheaper on MySQL than a result.
//
// Limit bounds the wait on the server; 0 does not. MySQL reads the optimizer hint (error 3024 when
// the time is over), MariaDB the executable comment (error 1969), and each takes the other's for a
// plain comment. innodb_lock_wait_timeout counts whole seconds, and no hint changes it.
func (s *session) lockSQL(request dialects.Request, clause string, limit time.Duration, comment string) (string,
	error,
) {
	if permitOf(request) {
		return permitSQL(request, comment)
	}
	selects, err := s.selectsOf(request, clause)
	if err != nil {
		return "", err
	}
	if request.Fence != "" && clause != nowait {
		selects = append(selects, fenceOf(request.Fence).counted("'token'"))
	}
	selects[0] = comment + selects[0]
	var settings []string
	switch {
	case clause == server.SkipLocked:
		settings = []string{server.SomeWait}
	case s.patient(limit > 0):
		settings = []string{server.LongWait}
	}
	if limit > 0 {
		settings = append(settings, fmt.Sprintf("max_statement_time=%.3f", limit.Seconds()))
		selects[0] = fmt.Sprintf("/*+ MAX_EXECUTION_TIME(%d) */ ", limit.Milliseconds()) + selects[0]
	}
	query := "SELECT " + selects[0]
	if len(selects) > 1 {
		query = "(SELECT " + strings.Join(selects, ") UNION ALL (SELECT ") + ")"
	}
	return server.OnMariaDB(settings...) + query, nil
}

// patient says that innodb_lock_wait_timeout is the caller's, and ours to overrule: at 0 nobody
// stands in the queue. On a connection of Open it is long.
func (s *session) patient(limited bool) bool { return s.Owned == nil && (limited || !s.joined) }

// permitSQL locks the first row of the list that is free, and no other: the list comes first in the
// join, each row is looked up by its key, and the LIMIT ends the looking. At REPEATABLE READ a
// range would lock gaps, and by the other index MariaDB would lock more than it returns. MySQL
// wants to know that the list is not to be locked. The hash tells rows of a table made anew.
func permitSQL(request dialects.Request, comment string) (string, error) {
	table, err := server.QuoteTable(request.Table)
	result := "p.id"
	if request.Fence != "" {
		result = fenceOf(request.Fence).counted(result)
	}
	return server.OnMariaDB(server.SomeWait) + "SELECT " + comment + result + " FROM JSON_TABLE('[" +
		numbersOf(request.Values) + "]', '$[*]' COLUMNS (id INT PATH '$')) AS list STRAIGHT_JOIN " + table +
		" AS p FORCE INDEX (PRIMARY) ON p.id = list.id WHERE p.hash = '" + request.AnyOne +
		"' LIMIT 1 FOR UPDATE /*!80001 OF p */" + server.SkipLocked, err
}

func numbersOf(values []dialects.Value) string {
	numbers := make([]string, len(values))
	for i, value := range values {
		numbers[i] = value.Text
	}
	return strings.Join(numbers, ",")
}

// selectsOf are the queries, without the word SELECT, that together find the rows of request.
//
// InnoDB locks what it reads, not what a statement returns: so each query finds its rows by an
// index and reads nothing else. Slots have a primary key that can be forced; one alone is looked
// up, in half the server's time of a range. The index of a caller's table has no known name, and
// for an IN list the server may read all of a small table: hence one look-up for each value.
//
// FOR UPDATE by a secondary index locks the row itself as well. A shared lock does so only when the
// query reads a column that is not in that index; else a writer could have the row by its primary
// key. Hence a query inside that reads all columns, and a LIMIT, so that the two are not merged.
func (s *session) selectsOf(request dialects.Request, clause string) ([]string, error) {
	table, err := server.QuoteTable(request.Table)
	column, failed := server.QuoteColumn(request.Column)
	if err = cmp.Or(err, failed); err != nil {
		return nil, err
	}
	condition, locking := "", " FOR UPDATE"+clause
	if request.Shared {
		condition, locking = " AND "+server.Writable, " "+server.Sharing+clause
	}
	if request.Slots > 0 {
		numbers := numbersOf(request.Values)
		condition = fmt.Sprintf(" AND slots = %d", request.Slots) + condition
		if len(request.Values) > 1 { // in a UNION, MySQL forgets an order without a limit
			return []string{fmt.Sprintf("%[1]s FROM %[2]s FORCE INDEX (PRIMARY) WHERE %[1]s IN (%[3]s)%[4]s "+
				"ORDER BY %[1]s LIMIT %[5]d%[6]s", column, table, numbers, condition, len(request.Values),
				locking)}, nil
		}
		result := column
		if s.Owned != nil && onlySlot(request) && clause != nowait {
			result += " INTO @txlock"
		}
		return []string{result + " FROM " + table + " WHERE " + column + " = " + numbers + condition + locking}, nil
	}
	if request.Work.TakesFree() {
		free := request.Work.Free
		where, err := filled(free.Where, free.Args) // which may end in a comment
		return []string{fmt.Sprintf("%s FROM %s WHERE %s\nLIMIT %d%s", column, table, where, free.Limit, locking)}, err
	}
	selects := make([]string, len(request.Values))
	for i, value := range request.Values {
		literal, err := server.Literal(value)
		if err != nil {
			return nil, dialects.RefusedError{Err: fmt.Errorf("value %.100q of %s: %w", value.Text, column, err)}
		}
		found := table + " WHERE " + column + " = " + literal + condition + locking
		if request.Shared {
			found = fmt.Sprintf("(SELECT * FROM %s WHERE %s = %s%s LIMIT %d%s) AS whole", table, column, literal,
				condition, uint64(math.MaxUint64), locking)
		}
		selects[i] = strconv.Itoa(i) + " FROM " + found
	}
	return selects, nil
}

// filled has arguments as literals, one for each ? outside of quotes and comments.
func filled(text string, args []dialects.Value) (_ string, err error) {
	if len(args) == 0 { // quotes may be unclear
		return text, nil
	}
	n := 0
	text = places.ReplaceAllStringFunc(text, func(place string) string {
		if place != "?" {
			return place
		}
		if n++; n > len(args) {
			return place
		}
		literal, failed := server.Literal(args[n-1])
		err = cmp.Or(err, failed)
		return literal
	})
	if n != len(args) {
		err = fmt.Errorf("the condition has %d times a ?, and %d arguments", n, len(args))
	}
	return text, err
}

var places = regexp.MustCompile("'[^']*'|\"[^\"]*\"|`[^`]*`|#.*|\\?")

// valuesOf are the values of request that a result of lockSQL names, each once.
func valuesOf(request dialects.Request, result []string) []string {
	values := slices.Clone(result)
	if request.Slots == 0 {
		for i, text := range result {
			position, _ := strconv.Atoi(text)
			values[i] = request.Values[position].Text
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

const (
	// guardSQL changes settings of a caller's session, which commitAndRestore restores. The level
	// is the session's: that of a single transaction would outlive one that SET commits. What the
	// session was left with is committed first, or it would keep its snapshot: SET commits when it
	// switches autocommit from off to on. The server assigns from left to right, behind all reads.
	guardSQL = "SET @txlock_autocommit = @@autocommit, @txlock_wait_timeout = @@wait_timeout, " +
		"@txlock_net_write_timeout = @@net_write_timeout, " +
		"@txlock_isolation = " + server.Isolation + ", autocommit = 0, autocommit = 1, autocommit = 0, " +
		server.AtReadCommitted
	// commitAndRestore ends the transaction in the statement that restores the settings: a server
	// that is told to switch autocommit on commits (MySQL manual, section 15.3.1). A commit that
	// the server refuses is the statement's error. It costs a trip less than COMMIT.
	commitAndRestore = "SET autocommit = 1, autocommit = @txlock_autocommit, wait_timeout = @txlock_wait_timeout, " +
		"net_write_timeout = @txlock_net_write_timeout, " + server.Isolation + " = @txlock_isolation, " +
		"@txlock_autocommit = NULL, @txlock_wait_timeout = NULL, @txlock_net_write_timeout = NULL, " +
		"@txlock_isolation = NULL"
)

// leaseSQL goes behind other settings. The second is for a client that stops reading a result.
func leaseSQL(lease time.Duration) string {
	return fmt.Sprintf(", wait_timeout = %[1]d, net_write_timeout = %[1]d", (lease+time.Second-1)/time.Second)
}
