// Package guarantees shows what txlock promises, on real servers. Each function shows one guarantee
// on one engine, through one client; the list of them, a sentence each, is lock_test.go in the
// root.
package guarantees

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

var (
	background = context.Background()
	errWork    = errors.New("the work failed")
)

// OneHolder shows that at most one session holds a key.
func OneHolder[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	other := testbed.NewFixture(t, e, c)
	var inside atomic.Int64
	contend(t, 16, 25, func(caller int) error {
		locks, rival := f.Locks, other.Locks
		if caller%2 == 1 {
			locks, rival = rival, locks
		}
		lock, err := locks.Mutex(f.Key("one")).Lock(background)
		if err != nil {
			return err
		}
		now := inside.Add(1)
		_, tried := rival.Mutex(f.Key("one")).TryLock(background)
		inside.Add(-1)
		if now > 1 || !errors.Is(tried, txlock.ErrNotAcquired) {
			err = fmt.Errorf("%d are inside, and the error of another client's try is %v", now, tried)
		}
		return errors.Join(err, lock.Unlock(background))
	})
}

// contend has callers call again and again, side by side, until all have, or have failed.
func contend(t *testing.T, callers, rounds int, call func(caller int) error) {
	t.Helper()
	var group errgroup.Group
	for caller := range callers {
		group.Go(func() error {
			for range rounds {
				if err := call(caller); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
}

// NoLostUpdate reads, then writes what it has computed. Without a lock that loses updates.
func NoLostUpdate[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key, n int", "(1, 0)")
	mutexes := []*txlock.Mutex[Tx]{f.Locks.Mutex(f.Key("counter")), f.Locks.Rows(table, "id", 1)}
	for round, m := range mutexes {
		contend(t, 8, 10, func(int) error {
			return m.Do(background, func(ctx context.Context, tx Tx) error {
				n, err := f.Query(ctx, tx, "SELECT n FROM "+table)
				if err != nil {
					return err
				}
				return f.Exec(ctx, tx, "UPDATE "+table+" SET n = "+n+" + 1")
			})
		})
		require.Equal(t, 80*(round+1), f.Total(t, "SELECT n FROM "+table))
	}
}

// Tries shows that a try misses what is held and takes what is free.
func Tries[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	m := f.Locks.Mutex(f.Key("try"))
	lock := testbed.TryLock(t, m)

	err := testbed.Misses(t, m)
	require.ErrorContains(t, err, f.Key("try"))
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, m.TryDo(background, func(context.Context, Tx) error {
		t.Error("the work must not run")
		return nil
	}), txlock.ErrNotAcquired)
	require.Zero(t, f.Waiting(t))

	testbed.Unlock(t, lock)
	ran := false
	require.NoError(t, m.TryDo(background, func(context.Context, Tx) error {
		ran = true
		f.Taken(t, f.Key("try"))
		return nil
	}))
	require.True(t, ran)
	f.Free(t, f.Key("try"))
}

// OneTryWins is a scheduler on several machines: all of them try at the same moment.
func OneTryWins[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key", "(1)")
	const rivals, rounds = 4, 100
	f.Warm(t, rivals)
	for name, m := range map[string]*txlock.Mutex[Tx]{
		"key": f.Locks.Mutex(f.Key("k")), "row": f.Locks.Rows(table, "id", 1),
	} {
		for range rounds {
			locks, start := make(chan *txlock.Lock, rivals), make(chan struct{})
			var group errgroup.Group
			for range rivals {
				group.Go(func() error {
					<-start
					lock, err := m.TryLock(background)
					if errors.Is(err, txlock.ErrNotAcquired) {
						err = nil
					}
					locks <- lock
					return err
				})
			}
			close(start)
			require.NoError(t, group.Wait())
			close(locks)
			winners := 0
			for lock := range locks {
				if lock != nil {
					winners++
					testbed.Unlock(t, lock)
				}
			}
			require.Equal(t, 1, winners, name)
		}
	}
}

// OwnRows shows that rows of the caller's own table are locked, and no others.
func OwnRows[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "sku varchar(20) primary key, n int", "('a', 1), ('b', 1), ('c', 1)")
	lock := testbed.Lock(t, f.Locks.Rows(table, "sku", "b", "a", "b"))
	for _, held := range []string{"a", "b"} {
		testbed.Misses(t, f.Locks.Rows(table, "sku", held))
	}
	// Only the named rows are locked, even when they are most of a small table.
	other, err := f.Locks.Rows(table, "sku", "c").TryLock(background)
	require.NoError(t, err, "a row that nobody named is locked")
	testbed.Unlock(t, other)

	// A statement written by hand meets the same lock.
	tx := f.Begin(t, f.DSNFor(f.Label, "", nil), 0)
	require.Error(t, f.Exec(background, tx, "SELECT 1 FROM "+table+" WHERE sku = 'a' FOR UPDATE NOWAIT"))
	require.NoError(t, f.End(background, tx, false))
	testbed.Unlock(t, lock)

	for _, m := range []*txlock.Mutex[Tx]{
		f.Locks.Rows(table, "sku", "a", "nonesuch"),
		f.Locks.Rows(table, "sku", "nonesuch"),
	} {
		_, err = m.Lock(background)
		require.ErrorIs(t, err, txlock.ErrNoRow)
		require.ErrorContains(t, err, "nonesuch")
		require.ErrorIs(t, testbed.ErrorOf(m.TryLock(background)), txlock.ErrNoRow)
		require.ErrorIs(t, m.Do(background, idle[Tx]), txlock.ErrNoRow)
		tx := f.Begin(t, f.DSNFor(f.Label, "", nil), 0)
		require.ErrorIs(t, m.LockTx(background, tx), txlock.ErrNoRow)
		require.ErrorIs(t, m.TryLockTx(background, tx), txlock.ErrNoRow)
		require.NoError(t, f.Exec(background, tx, "INSERT INTO "+table+" VALUES ('z', 1)"), "the transaction is usable")
		require.NoError(t, f.End(background, tx, false))
	}
	require.ErrorContains(t, testbed.ErrorOf(f.Locks.Rows(table, "nocolumn", "a").Lock(background)), "nocolumn")
	require.ErrorContains(t, testbed.ErrorOf(f.Locks.Rows(table+"_missing", "sku", "a").Lock(background)), "_missing")
}

// StrangeKeys shows that keys of any bytes and any length work.
func StrangeKeys[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	for _, key := range []string{
		strings.Repeat("x", 100_000), `'"` + "`" + `*/ -- \ ; $1 ? %s`, "nul\x00nul", "\xff\xfe", "日本語", " ",
		"*/", "/*! DROP",
	} {
		lock := testbed.Lock(t, f.Locks.Mutex(f.Key(key)))
		f.Taken(t, f.Key(key))
		err := testbed.Misses(t, f.Locks.Mutex(f.Key(key)))
		require.Less(t, len(err.Error()), 400, "the error is readable")
		testbed.Unlock(t, lock)
		require.NoError(t, f.Locks.Mutex(f.Key(key)).Do(background, idle[Tx]))
	}
}

type identifier [2]byte

func (i identifier) Value() (driver.Value, error) { return fmt.Sprintf("%x", i[:]), nil }

// StrangeValues shows that values of any type and any text name their row.
func StrangeValues[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	texts := []string{
		`it's`, `back\slash`, `"`, "`", "日本", `*/ /*`, "%_", "a;b",
		"$1 ? :x", "{x,y}", `\`, `'; DROP TABLE x; --`,
	}
	binary := "varbinary(20)"
	if f.Postgres {
		binary = "bytea"
	}
	table := f.MakeTable(t, "k varchar(100) primary key, n bigint unique, b "+binary+" unique")
	for _, text := range texts {
		placeholder := "?, NULL, NULL"
		if f.Postgres {
			placeholder = "$1, NULL, NULL"
		}
		database.Exec(t, f.Admin, "INSERT INTO "+table+" VALUES ("+placeholder+")", text)
	}
	f.AsAdmin(t, "INSERT INTO "+table+" VALUES ('0a0b', -5, '\x01a'), ('42', 9007199254740993, NULL)")
	raw := []byte("\x01a")
	held := func(column string, values ...any) {
		t.Helper()
		lock := testbed.Lock(t, f.Locks.Rows(table, column, values...))
		for _, value := range values {
			testbed.Misses(t, f.Locks.Rows(table, column, value))
		}
		testbed.Unlock(t, lock)
		require.NoError(t, f.Locks.Rows(table, column, values...).Do(background, idle[Tx]))
	}
	all := make([]any, len(texts))
	for i, text := range texts {
		held("k", text)
		all[i] = text
	}
	held("k", all...)
	held("k", identifier{0x0a, 0x0b}, 42)
	held("n", -5)
	held("n", int64(9007199254740993), "-5")
	held("b", raw)
	require.ErrorIs(t, testbed.ErrorOf(f.Locks.Rows(table, "b", []byte{0, 1}).Lock(background)), txlock.ErrNoRow)
}

// SeveralKeys shows that several keys are locked together, duplicates once.
func SeveralKeys[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	a, b, x := f.Key("a"), f.Key("b"), f.Key("x")
	lock := testbed.Lock(t, f.Locks.Mutex(b, a, b, a))
	f.Taken(t, a)
	f.Taken(t, b)
	f.Taken(t, x, b)
	f.Free(t, x) // the failed try has released it
	testbed.Unlock(t, lock)
	f.Free(t, a, b, x)
}

// OppositeOrders shows that opposite orders of keys never deadlock.
func OppositeOrders[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key", "(1), (2), (3), (10), (20)")
	keys := []string{f.Key("1"), f.Key("2"), f.Key("3")}
	mutexes := []*txlock.Mutex[Tx]{
		f.Locks.Mutex(keys[0], keys[1], keys[2]), f.Locks.Mutex(keys[2], keys[1]), f.Locks.Mutex(keys[1], keys[0]),
		f.Locks.Rows(table, "id", 1, 10, 2, 20), f.Locks.Rows(table, "id", 20, 2, 3),
		f.Locks.Rows(table, "id", 3, 10, 1),
	}
	contend(t, 2*len(mutexes), 15, func(caller int) error {
		return mutexes[caller%len(mutexes)].Do(background, idle[Tx])
	})
}
