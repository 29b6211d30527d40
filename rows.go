package txlock

import (
	"cmp"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// Rows names rows of a table of the caller's: those whose column has one of values, at most 256.
// The column must be unique and indexed. Values are strings, integers, floats, booleans, []byte for
// a binary column, or a driver.Valuer of these. A row that does not exist is [ErrNoRow]. On MySQL
// and MariaDB a view, a temporary table, and a table of an engine that locks no rows are
// [ErrUnsafeEngine]. Spell table and column as in SQL, schema.table with quotes where SQL needs
// them, and the same way everywhere: the order of waiters depends on it. Rows sends nothing.
func (l *Locker[Tx]) Rows(table, column string, values ...any) *Mutex[Tx] {
	rows, err := convert(values)
	switch {
	case table == "" || column == "":
		err = errors.New("Rows needs the names of a table and of a column")
	case err == nil && strings.EqualFold(table, l.config.table):
		err = fmt.Errorf("Rows of %s: that is the lock table, whose rows belong to Mutex", table)
	}
	names := make([]string, len(rows))
	for i, row := range rows {
		names[i] = row.Text
	}
	shown := rows
	if l.config.hidden {
		shown = nil
	}
	request := dialects.Request{
		Table: table, Column: column, Values: rows, Callers: true, Label: label.Rows(table, column, shown...),
	}
	return &Mutex[Tx]{locker: l, err: err, target: target{
		name: nameOfRows(table, column, values), call: Call{Table: table, Column: column, Names: names},
		rows: request,
	}}
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

// ownRows are rows of the table of a kind, known by their numbers. Of permits, which have a hash, a
// lock takes any one, else it has a token.
func (l *Locker[Tx]) ownRows(name string, call Call, table func(dialects.Kinds) string, hash string,
	numbers ...string,
) target {
	t := target{own: func(found *dialects.LockTable) dialects.Request {
		r := dialects.Request{Table: table(found.Kinds), Column: "id", Ours: true, AnyOne: hash}
		for _, number := range numbers {
			r.Values = append(r.Values, dialects.Value{Text: number})
		}
		if hash != "" {
			r.Label = label.Permits(len(numbers), l.config.shownName(call.Names[0]))
		} else {
			r.Label, r.Fence = label.Rows(r.Table, "id", r.Values...), found.Name
		}
		return r
	}}
	t.name, t.call = name, call
	return t
}

// kindRow is the row that a name has in the table of a kind, by the column that is called so.
func (l *Locker[Tx]) kindRow(kind, name string, value []byte, table func(dialects.Kinds) string) target {
	full := kind + ":" + name
	t := target{own: func(found *dialects.LockTable) dialects.Request {
		return dialects.Request{
			Table: table(found.Kinds), Column: kind, Values: []dialects.Value{{Text: string(value), Binary: true}},
			Label: label.Keys(l.config.shownName(full)),
		}
	}}
	t.name, t.call.Names = nameOf([]string{name}), []string{full}
	return t
}

// valueOf gives a value the text that the database compares with the column. Equal values have
// equal texts.
func valueOf(value any) (dialects.Value, error) {
	if valuer, ok := value.(driver.Valuer); ok {
		resolved, err := valuer.Value()
		if err != nil {
			return dialects.Value{}, err
		}
		if _, again := resolved.(driver.Valuer); !again {
			return valueOf(resolved)
		}
	}
	if bytes, ok := value.([]byte); ok && bytes != nil {
		return dialects.Value{Text: string(bytes), Binary: true}, nil
	}
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.String:
		return dialects.Value{Text: v.String()}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return dialects.Value{Text: strconv.FormatInt(v.Int(), 10)}, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return dialects.Value{Text: strconv.FormatUint(v.Uint(), 10)}, nil
	case reflect.Float32, reflect.Float64:
		return dialects.Value{Text: strconv.FormatFloat(v.Float(), 'g', -1, 64)}, nil
	case reflect.Bool:
		return dialects.Value{Text: map[bool]string{false: "0", true: "1"}[v.Bool()]}, nil
	}
	return dialects.Value{}, fmt.Errorf("a %T cannot name a row; give a string, a number, a bool or a []byte", value)
}
