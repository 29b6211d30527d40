package txlock

import (
	"cmp"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// Rows names rows of a table of the caller's: those whose column has one of values, at most 256.
// The column must be unique and indexed. Values are strings, integers below 2^63, floats, booleans,
// []byte for a binary column, or a driver.Valuer of these. A row that does not exist is [ErrNoRow].
// On MySQL and MariaDB a view, a temporary table, and one that is not of InnoDB are
// [ErrUnsafeEngine]. Spell table and column as in SQL, and the same way everywhere, for the order.
func (l *Locker[Tx]) Rows(table, column string, values ...any) *Mutex[Tx] {
	rows, err := convert(values)
	err = cmp.Or(l.checkCallers("Rows", table, column), err)
	names := make([]string, len(rows))
	for i, row := range rows {
		names[i] = row.Text
	}
	shown := names
	if l.config.hidden {
		shown = nil
	}
	request := dialects.Request{
		Table: table, Column: column, Values: rows, Callers: true, Label: label.Rows(table, column, shown...),
	}
	return &Mutex[Tx]{locker: l, err: err, target: target{
		name: nameOfRows(table, column, names...), call: Call{Table: table, Column: column, Names: names},
		rows: func(*dialects.LockTable) dialects.Request { return request },
	}}
}

// checkCallers refuses what is no table of the caller's.
func (l *Locker[Tx]) checkCallers(by, table, column string) error {
	switch {
	case table == "" || column == "":
		return fmt.Errorf("%s needs the names of a table and of a column", by)
	case strings.EqualFold(table, l.config.table):
		return fmt.Errorf("%s of %s: that is the lock table, whose rows belong to Mutex", by, table)
	}
	return nil
}

// anyOf is the first free rows of a table of the caller's.
func (l *Locker[Tx]) anyOf(table, column, where string) target {
	request := dialects.Request{
		Table: table, Column: column, Callers: true, Label: label.Rows(table, column),
	}
	return target{
		name: fmt.Sprintf("%.64s WHERE %.64q", table, where), call: Call{Table: table, Column: column},
		rows: func(*dialects.LockTable) dialects.Request { return request },
	}
}

// convert converts values from what a caller has given: each once, in the order in which they are
// locked.
func convert(values []any) (rows []dialects.Value, err error) {
	for i, value := range values {
		row, err := valueOf(value)
		if err != nil {
			return nil, fmt.Errorf("value %d of Rows: %w", i+1, err)
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil, errors.New("Rows needs at least one value")
	}
	slices.SortFunc(rows, func(a, b dialects.Value) int { return cmp.Compare(a.Text, b.Text) })
	rows = slices.Compact(rows)
	return rows, tooMany(len(rows))
}

// permits are rows of semaphores, any one of those with that hash.
func (l *Locker[Tx]) permits(call Call, hash string, numbers ...string) target {
	return target{call: call, rows: func(found *dialects.LockTable) dialects.Request {
		return dialects.Request{
			Table: found.Kinds.Permits.Table, Column: "id", Values: byNumber(numbers), Ours: true, AnyOne: hash,
			Label: label.Permits(len(numbers), l.config.shownName(call.Names[0])),
		}
	}}
}

// ranks are rows of elections, whose lock has a token.
func (l *Locker[Tx]) ranks(name string, call Call, numbers ...string) target {
	return target{name: name, call: call, rows: func(found *dialects.LockTable) dialects.Request {
		table := found.Kinds.Leaders.Table
		return dialects.Request{
			Table: table, Column: "id", Values: byNumber(numbers), Ours: true, Fence: found.Name,
			Label: label.Rows(table, "id", numbers...),
		}
	}}
}

func byNumber(numbers []string) (rows []dialects.Value) {
	for _, number := range numbers {
		rows = append(rows, dialects.Value{Text: number})
	}
	return rows
}

// claims is the row of a claim.
func (l *Locker[Tx]) claims(name, hash string) target {
	kind := string(dialects.KindClaim)
	call := Call{Names: []string{kind + ":" + name}}
	return target{name: nameOf([]string{name}), call: call, rows: func(found *dialects.LockTable) dialects.Request {
		return dialects.Request{
			Table: found.Kinds.Claims.Table, Column: kind, Label: label.Keys(l.config.shownName(call.Names[0])),
			Values: []dialects.Value{{Text: hash, Binary: true}},
		}
	}}
}

// valueOf gives a value the text that the database compares with the column. Equal values have
// equal texts.
func valueOf(value any) (dialects.Value, error) {
	plain, err := driver.DefaultParameterConverter.ConvertValue(value)
	switch v := plain.(type) {
	case string:
		return dialects.Value{Text: v}, nil
	case int64:
		return dialects.Value{Text: strconv.FormatInt(v, 10)}, nil
	case float64:
		return dialects.Value{Text: strconv.FormatFloat(v, 'g', -1, 64)}, nil
	case bool:
		return dialects.Value{Text: map[bool]string{false: "0", true: "1"}[v]}, nil
	case []byte:
		if v != nil {
			return dialects.Value{Text: string(v), Binary: true}, nil
		}
	}
	err = cmp.Or(err, errors.New("it is none of these"))
	return dialects.Value{}, fmt.Errorf("a %T cannot name a row or be compared, give a string, a number, a bool or a "+
		"[]byte: %w", value, err)
}

// maxRows bounds one Mutex. On PostgreSQL each of its rows has a queue lock, and the server has
// room for max_locks_per_transaction (64) of each connection. MariaDB reads the whole lock table
// for a list of a thousand slots, and so locks it; MySQL takes seconds for some thousand rows.
const maxRows = 256

func tooMany(rows int) error {
	if rows <= maxRows {
		return nil
	}
	return fmt.Errorf("%d rows at once, at most %d are possible; lock a coarser key", rows, maxRows)
}
