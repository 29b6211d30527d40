package engines

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	client "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// What an argument means does not depend on whether its statement travels with the lock: Exec
// writes what a Do writes, or fails with the same error. In the text of a query a text is a DOUBLE
// in arithmetic, a float is a DECIMAL, and an integer behind ORDER BY is a column.
func TestExecArguments(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		written := f.MakeTable(t, "id int primary key, result varbinary(4000), "+columnsOfTypes())
		f.AsAdmin(t, "CREATE TABLE "+f.Label+".origin (n int, u int unsigned, big bigint, money decimal(30, 2), "+
			"f double, s varchar(20), b varbinary(20), d datetime, j json)")
		f.AsAdmin(t, "INSERT INTO "+f.Label+".origin VALUES (7, 7, 1000000, 12345678901234567.89, 0.3, '7', '7', "+
			"'2026-11-26 10:11:12', '{\"a\": 7}')")
		f.AsAdmin(t, "CREATE TABLE "+f.Label+".three (id int primary key)")
		f.AsAdmin(t, "INSERT INTO "+f.Label+".three VALUES (1), (2), (3)")
		a := arguments{f, f.Locks.Mutex(f.Key("a")), written}
		for _, expression := range expressions {
			a.insert(t, "INSERT INTO "+written+" (id, result) SELECT %d, "+expression+" FROM "+f.Label+".origin")
		}
		for i := range columnTypes {
			a.insert(t, fmt.Sprintf("INSERT INTO %s (id, c%d) VALUES (%%d, ?)", written, i))
		}
	})
}

// myInt is an integer by another name.
type myInt int64

// argumentValues are values that mean something else in the text of a query than to a prepared
// statement, and others.
func argumentValues() []any {
	seven := 7
	return []any{
		0, 1, 2, 7, -3, int8(-5), int16(300), int64(math.MaxInt64), int64(math.MinInt64), myInt(9), 20261126,
		uint(5), uint8(200), uint64(math.MaxUint64), true, nil, &seven,
		sql.NullInt64{Int64: 4, Valid: true},
		"0.01", "12345678901234567.89", "7", "", "it's \\ \"", "Jörg", "2026-11-26", "5 apples",
		0.1, float32(0.1), 1e300, []byte("7"),
		[]byte("\x01 A"),
		json.RawMessage(`{"a": 1}`),
		time.Date(2026, 11, 26, 10, 11, 12, 500_000_000, time.UTC),
	}
}

// expressions have an argument, and read a row with a column of each type. DATEDIFF(d, ?) is left
// out: as a prepared statement it crashes MySQL 9.7.
var expressions = []string{
	"?", "money + ?", "? - money", "money * ?", "money / ?", "? / 7", "? / money", "? DIV 3", "? % 3", "-?", "? - 10",
	"? + 1.5", "? * 0.1", "n + ?", "n * ?", "? + ?", "f * ?", "n = ?", "n IN (?, 7)", "n > ?", "s = ?", "s + ?",
	"money = ?", "d > ?", "d + INTERVAL ? DAY", "DATE(?)", "CONCAT(?, 'x')", "CONCAT(s, ?)", "HEX(?)", "LPAD(s, 5, ?)",
	"IF(?, 'yes', 'no')", "COALESCE(?, 'none')", "CASE WHEN n > 0 THEN ? ELSE 1.25 END", "GREATEST(?, 3)",
	"ROUND(?, 1)", "? & 255", "~?", "NOT ?", "? IS NULL", "s LIKE ?", "CAST(? AS CHAR)",
	"CAST(? AS DECIMAL(20, 3))", "JSON_ARRAY(?)",
	"JSON_EXTRACT(j, '$.a') = ?", "FORMAT(?, 2)", "CHAR(?)", "FIELD(?, 7, 'abc')", "b = ?", "CHARSET(?)",
	"(SELECT AVG(?) FROM three)", "(SELECT id FROM three ORDER BY ?, id LIMIT 1)", "SEC_TO_TIME(?)",
	"(SELECT MAX(id) FROM three GROUP BY ? ORDER BY 1 DESC LIMIT 1)", "n BETWEEN ? AND 10", "(?, 1) = (n, 1)",
	"u - ?", "big - ?", "u < ?", "j = ?", "n + ? * 0.1", "n <=> ?",
	"(SELECT COUNT(*) FROM (SELECT id FROM three LIMIT ?) AS some)", "(SELECT ? UNION SELECT 1.5 LIMIT 1)",
}

var columnTypes = []string{
	"decimal(30, 2)", "double", "float", "bigint", "int unsigned", "varchar(300)", "varbinary(300)", "datetime(6)",
	"date", "time(3)", "json", "bit(64)", "year", "enum('abc', '7')", "tinyint(1)",
}

// arguments runs statements with each value.
type arguments struct {
	*testbed.Fixture[*sql.Tx]
	m       *txlock.Mutex[*sql.Tx]
	written string
}

// errorsOf runs a statement with each value, in the work of one Do, and in an Exec each. In its
// text %d is the number of the row. It returns the errors.
func (a arguments) errorsOf(t *testing.T, text string) (inWork, inExec []string) {
	t.Helper()
	argsOf := func(text string, value any) (args []any) {
		for range strings.Count(text, "?") {
			args = append(args, value)
		}
		return args
	}
	values := argumentValues()
	require.NoError(t, a.m.Do(background, func(ctx context.Context, tx *sql.Tx) error {
		for i, value := range values {
			text := fmt.Sprintf(text, 2*i)
			_, err := tx.ExecContext(ctx, text, argsOf(text, value)...)
			inWork = append(inWork, fmt.Sprintf("%T(%v): %s", value, value, numberOf(err)))
		}
		return nil
	}))
	for i, value := range values {
		text := fmt.Sprintf(text, 2*i+1)
		_, err := a.m.Exec(background, txlock.Statement{SQL: text, Args: argsOf(text, value)})
		inExec = append(inExec, fmt.Sprintf("%T(%v): %s", value, value, numberOf(err)))
	}
	return inWork, inExec
}

// insert compares the rows that a statement writes, in whose text %d is the number of the row.
func (a arguments) insert(t *testing.T, text string) {
	t.Helper()
	text = strings.ReplaceAll(text, "three", a.Label+".three")
	a.AsAdmin(t, "DELETE FROM "+a.written)
	inWork, inExec := a.errorsOf(t, text)
	columns := []string{"result"}
	for i := range columnTypes {
		columns = append(columns, fmt.Sprintf("c%d", i))
	}
	for id, row := range a.rows(t, a.written, columns) {
		if id%2 == 0 {
			inWork[id/2] += row
		} else {
			inExec[id/2] += row
		}
	}
	require.Equal(t, inWork, inExec, text)
}

func columnsOfTypes() string {
	columns := make([]string, len(columnTypes))
	for i, of := range columnTypes {
		columns[i] = fmt.Sprintf("c%d %s", i, of)
	}
	return strings.Join(columns, ", ")
}

// rows are those of a table as text, by id.
func (a arguments) rows(t *testing.T, table string, columns []string) map[int]string {
	t.Helper()
	text := ""
	for _, column := range columns {
		text += ", ' " + column + " ', COALESCE(HEX(CAST(" + column + " AS BINARY)), 'NULL')"
	}
	rows, err := a.Admin.Query("SELECT id, CONCAT(''" + text + ") FROM " + table)
	require.NoError(t, err)
	defer rows.Close()
	found := map[int]string{}
	for rows.Next() {
		var id int
		var row string
		require.NoError(t, rows.Scan(&id, &row))
		found[id] = row
	}
	require.NoError(t, rows.Err())
	return found
}

// numberOf is the number of a server's error, or what a client library says.
func numberOf(err error) string {
	var server *client.MySQLError
	switch {
	case err == nil:
		return "nil"
	case errors.As(err, &server):
		return fmt.Sprint(server.Number)
	case errors.Is(err, txlock.ErrLost):
		return err.Error()
	}
	return "an error of the client library"
}
