package txlock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"

	"github.com/txlock/txlock/dialects"
)

// AnyRows are those free rows of a table of the caller's that come first: the next jobs of a queue,
// a free account, seat or port.
type AnyRows[K ~int64 | ~string, Tx any] struct {
	mutex *Mutex[Tx]
	free  dialects.Free
}

func (a *AnyRows[K, Tx]) made() *Mutex[Tx] { return made(a.mutex, "AnyRows: Any") }

// Any names rows of a table of the caller's, known by a unique column without NULL, of which the
// first free one will do. Where is SQL of the caller: a condition, and behind it ORDER BY, as in
// "state = 'ready' ORDER BY id", with $1 or ? for args, which are as values of [Locker.Rows] and
// travel as text. An index should serve both: MySQL and MariaDB lock all that match where they have
// to sort.
func Any[K ~int64 | ~string, Tx any](l *Locker[Tx], table, column, where string, args ...any) *AnyRows[K, Tx] {
	free, err := dialects.Free{Where: where, Limit: 1}, l.checkCallers("Any", table, column)
	for i, arg := range args {
		value, bad := valueOf(arg)
		if free.Args = append(free.Args, value); err == nil && bad != nil {
			err = fmt.Errorf("argument %d of Any: %w", i+1, bad)
		}
	}
	if err == nil && len(args) > 0 && unclear.MatchString(where) {
		err = errors.New("beside arguments, the condition of Any must not have a backslash, a comment or a $ in quotes")
	}
	return &AnyRows[K, Tx]{&Mutex[Tx]{locker: l, err: err, target: l.anyOf(table, column, where)}, free}
}

// unclear is what may begin or end quotes in one sql_mode or driver and not in another.
var unclear = regexp.MustCompile(`\\|--|/\*|\$\D`)

// Limit returns a copy that takes up to n rows, 1 by default, at most 256.
func (a *AnyRows[K, Tx]) Limit(n int) *AnyRows[K, Tx] {
	m, free := *a.made(), a.free
	free.Limit = n
	if m.err == nil && (n < 1 || n > maxRows) {
		m.err = fmt.Errorf("Limit(%d): it must be from 1 to %d", n, maxRows)
	}
	return &AnyRows[K, Tx]{&m, free}
}

// Retry returns a copy whose Do runs again: see [Mutex.Retry].
func (a *AnyRows[K, Tx]) Retry(n int) *AnyRows[K, Tx] {
	return &AnyRows[K, Tx]{a.made().Retry(n), a.free}
}

// Do locks the first rows that no other transaction has locked, and runs work with their keys, in
// order: at least one, or it is [ErrNotAcquired], at once. Else it is [Mutex.Do]: nil means that
// the work is committed, and the rows were locked until then. The work must change a column of the
// rows that the condition names, or they are found again, also in a Do in this work: what it reads
// of other tables is older than the lock. After an error or a panic the rows are free again.
func (a *AnyRows[K, Tx]) Do(ctx context.Context, work func(ctx context.Context, tx Tx, keys []K) error) error {
	const verb = "AnyRows.Do"
	m, keys := a.made(), []K(nil)
	if work == nil {
		return m.wrap(verb, errors.New("nil work"))
	}
	granted := func(ctx context.Context, tx Tx) error { return work(ctx, tx, keys) }
	return m.attempts(ctx, verb, granted, func(ctx context.Context, m *Mutex[Tx], granted txFunc[Tx]) error {
		one, free := *m, a.free
		one.free = &free
		return one.acquireAndPerform(ctx, verb, true, func(ctx context.Context, tx Tx) (err error) {
			if keys, err = keysOf[K](free.Found); err != nil {
				return m.wrap(verb, err)
			}
			return granted(ctx, tx)
		})
	})
}

// keysOf reads keys from their texts.
func keysOf[K ~int64 | ~string](texts []string) ([]K, error) {
	keys := make([]K, len(texts))
	for i, text := range texts {
		key := reflect.ValueOf(&keys[i]).Elem()
		if key.Kind() == reflect.String {
			key.SetString(text)
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the column is not of integers, take its keys as text: %w", err)
		}
		key.SetInt(n)
	}
	return keys, nil
}
