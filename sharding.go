package txlock

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/crc32"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
)

// maxRows bounds one Mutex. A statement that names more rows outgrows what MySQL's range optimizer
// plans for by default, and would lock rows that nobody named.
const maxRows = 4096

// target is what a Mutex locks: keys, which become slots once their number is known, or rows of a
// caller's table.
type target struct {
	keys          []string
	sums          []uint32 // of the keys
	table, column string
	values        []dialects.Value
	ours          bool // rows of a table that txlock alone locks
	permits       int  // of the semaphore that the only key names; 0: it names none
}

// sumOf hashes a key. The hash is part of what all clients agree on: changing it would let two
// versions of a program hold one key at once.
func sumOf(key string) uint32 { return crc32.ChecksumIEEE([]byte(key)) }

// slotOf is the slot of a key's hash among n slots.
func slotOf(sum uint32, n int) int { return int(sum % uint32(n)) }

// slotsOf hashes keys.
func slotsOf(keys []string) (target, error) {
	if len(keys) == 0 {
		return target{}, errors.New("no key given")
	}
	sums := make([]uint32, len(keys))
	for i, key := range keys {
		if key == "" {
			return target{}, errors.New("a key is empty")
		}
		sums[i] = sumOf(key)
	}
	if len(sums) > 1 {
		slices.Sort(sums)
		sums = slices.Compact(sums)
	}
	return target{keys: slices.Clone(keys), sums: sums}, tooMany(len(sums))
}

func rowsOf(table, column string, values []any) (target, error) {
	switch {
	case table == "" || column == "":
		return target{}, errors.New("Rows needs the names of a table and of a column")
	case len(values) == 0:
		return target{}, errors.New("Rows needs at least one value")
	}
	t := target{table: table, column: column, values: make([]dialects.Value, len(values))}
	for i, value := range values {
		converted, err := valueOf(value)
		if err != nil {
			return target{}, fmt.Errorf("value %d of Rows: %w", i+1, err)
		}
		t.values[i] = converted
	}
	slices.SortFunc(t.values, func(a, b dialects.Value) int { return cmp.Compare(a.Text, b.Text) })
	t.values = slices.Compact(t.values)
	return t, tooMany(len(t.values))
}

func tooMany(rows int) error {
	if rows > maxRows {
		return fmt.Errorf("%d rows at once, at most %d are possible; lock a coarser key", rows, maxRows)
	}
	return nil
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

// request is what the driver is asked for. Holding says that the caller already has a connection.
func (m *Mutex[Tx]) request(ctx context.Context, try, holding bool) (dialects.Request, error) {
	if m.target.permits > 0 {
		return m.permitRequest(ctx, try, holding)
	}
	if m.target.sums == nil {
		return dialects.Request{
			Table: m.target.table, Column: m.target.column, Values: m.target.values, Ours: m.target.ours,
			Shared: m.shared, Try: try, Hidden: m.locker.config.hidden,
		}, nil
	}
	found, err := m.locker.find(ctx, holding)
	if err != nil {
		return dialects.Request{}, err
	}
	values := slotValues(m.target.sums, found.Slots)
	return dialects.Request{
		Table: found.Name, Column: slotColumn, Values: values, Ours: true, Slots: found.Slots,
		Keys: m.locker.config.shownSlots(m.target.keys, values), Shared: m.shared, Try: try,
	}, nil
}

// slotColumn is the lock table's primary key.
const slotColumn = "slot"

// slotValues are the slots of keys, each once, in ascending order.
func slotValues(sums []uint32, n int) []dialects.Value {
	if len(sums) == 1 {
		return []dialects.Value{{Text: strconv.Itoa(slotOf(sums[0], n))}}
	}
	slots := make([]int, len(sums))
	for i, sum := range sums {
		slots[i] = slotOf(sum, n)
	}
	slices.Sort(slots)
	slots = slices.Compact(slots)
	values := make([]dialects.Value, len(slots))
	for i, slot := range slots {
		values[i].Text = strconv.Itoa(slot)
	}
	return values
}

// lookUpLimit bounds what takes another connection for a moment, for a caller that holds one
// already: in a full pool it might wait for itself.
const lookUpLimit = 3 * time.Second

// find looks the lock table up, once. That takes a connection for a moment. From then on the table
// is called by its full name: what changes the search_path or the default database of a connection,
// as work may, moves nobody to the locks of another table.
func (l *Locker[Tx]) find(ctx context.Context, holding bool) (*dialects.LockTable, error) {
	if found := l.found.Load(); found != nil {
		return found, nil
	}
	if holding {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, lookUpLimit)
		defer cancel()
	}
	found, err := l.driver.Find(ctx, l.config.table)
	if err != nil {
		if holding && errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("the lock table was not looked up yet, and the caller's transaction keeps the pool from "+
				"it (call Install or Check at start): %w", err)
		}
		return nil, err
	}
	l.found.Store(&found)
	return &found, nil
}

// forget looks the lock table up anew after err, if that says that there is none: it may be
// installed anew, with another number of slots, or in another schema.
func (l *Locker[Tx]) forget(err error) {
	if errors.Is(err, ErrNotInstalled) {
		l.found.Store(nil)
	}
}

// nameOf prints keys for errors.
func nameOf(keys []string) string {
	const shown = 3
	texts := make([]string, 0, shown+1)
	for i, key := range keys {
		if i == shown {
			texts = append(texts, fmt.Sprintf("and %d more", len(keys)-shown))
			break
		}
		texts = append(texts, strconv.Quote(truncate(key)))
	}
	return strings.Join(texts, ", ")
}

func nameOfRows(table, column string, values []any) string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = fmt.Sprint(value)
	}
	return truncate(table) + "." + truncate(column) + " " + nameOf(texts)
}

// truncate keeps the beginning of a long text.
func truncate(text string) string {
	const longest = 64
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest], "") + "…"
}
