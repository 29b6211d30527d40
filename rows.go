package txlock

import (
	"cmp"
	"context"
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
	r := &rows[Tx]{Locker: l, name: nameOfRows(table, column, values), table: table, column: column}
	return &Mutex[Tx]{locker: l, target: r, err: r.convert(values)}
}

// rows are rows of a table of the caller's.
type rows[Tx any] struct {
	*Locker[Tx]         // in whose lines callers wait
	name, table, column string
	values              []dialects.Value // each once, in the order in which they are locked
}

// convert converts the values from what its caller has given.
func (r *rows[Tx]) convert(values []any) error {
	switch {
	case r.table == "" || r.column == "":
		return errors.New("Rows needs the names of a table and of a column")
	case len(values) == 0:
		return errors.New("Rows needs at least one value")
	}
	r.values = make([]dialects.Value, 0, len(values))
	for i, value := range values {
		converted, err := valueOf(value)
		if err != nil {
			return fmt.Errorf("value %d of Rows: %w", i+1, err)
		}
		r.values = append(r.values, converted)
	}
	slices.SortFunc(r.values, func(a, b dialects.Value) int { return cmp.Compare(a.Text, b.Text) })
	r.values = slices.Compact(r.values)
	if strings.EqualFold(r.table, r.config.table) {
		return fmt.Errorf("Rows of %s: that is the lock table, whose rows belong to Mutex", r.table)
	}
	return tooMany(len(r.values))
}

func (r *rows[Tx]) String() string { return r.name }

func (r *rows[Tx]) call() Call {
	names := make([]string, len(r.values))
	for i, value := range r.values {
		names[i] = value.Text
	}
	return Call{Table: r.table, Column: r.column, Names: names}
}

func (r *rows[Tx]) request(context.Context, bool) (dialects.Request, error) {
	shown := r.values
	if r.config.hidden {
		shown = nil
	}
	return dialects.Request{
		Table: r.table, Column: r.column, Values: r.values, Label: label.Rows(r.table, r.column, shown...),
		LockTable: func(ctx context.Context) (*dialects.LockTable, error) { return r.find(ctx, true) },
	}, nil
}

// ownRow is a row of a table beside the lock table, known by its number. Its lock has a token.
type ownRow[Tx any] struct {
	*Locker[Tx]
	table, number, name string
	called              Call
}

func (r *ownRow[Tx]) String() string { return r.name }
func (r *ownRow[Tx]) call() Call     { return r.called }

func (r *ownRow[Tx]) request(ctx context.Context, connected bool) (request dialects.Request, err error) {
	found, err := r.find(ctx, connected)
	if err == nil {
		values := []dialects.Value{{Text: r.number}}
		request = dialects.Request{
			Table: r.table, Column: "id", Values: values, Ours: true, Fence: found.Name,
			Label: label.Rows(r.table, "id", values...),
		}
	}
	return request, err
}

// kindRow is the row that a name has in the table of a kind.
type kindRow[Tx any] struct {
	*Locker[Tx]
	kind, name string
	value      []byte // of the column that the kind is called by
	table      func(dialects.Kinds) string
}

func (r *kindRow[Tx]) String() string { return nameOf([]string{r.name}) }
func (r *kindRow[Tx]) call() Call     { return Call{Names: []string{r.kind + ":" + r.name}} }

func (r *kindRow[Tx]) request(ctx context.Context, connected bool) (request dialects.Request, err error) {
	found, err := r.find(ctx, connected)
	if err == nil {
		request = dialects.Request{
			Table: r.table(found.Kinds), Column: r.kind,
			Values: []dialects.Value{{Text: string(r.value), Binary: true}},
			Label:  label.Keys(r.config.shownName(r.kind + ":" + r.name)),
		}
	}
	return request, err
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
