package guarantees

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// jobs is a table with so many jobs that are ready.
func jobs[Tx any](t *testing.T, f *testbed.Fixture[Tx], n int) (table string) {
	t.Helper()
	table = f.MakeTable(t, "id int primary key, state varchar(10) not null, done int not null, unique (state, id)")
	for id := range n {
		f.AsAdmin(t, fmt.Sprintf("INSERT INTO %s VALUES (%d, 'ready', 0)", table, id+1))
	}
	return table
}

const ready = "state = 'ready' ORDER BY id"

func readyOf[Tx any](f *testbed.Fixture[Tx], table string) *txlock.AnyRows[int64, Tx] {
	return txlock.Any[int64](f.Locks, table, "id", ready)
}

// finish is the work of jobs.
func finish[Tx any](f *testbed.Fixture[Tx], table string) func(context.Context, Tx, []int64) error {
	return func(ctx context.Context, tx Tx, ids []int64) error {
		list := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ids)), ", "), "[]")
		return f.Exec(ctx, tx, "UPDATE "+table+" SET state = 'done', done = done + 1 WHERE id IN ("+list+")")
	}
}

// heldRows takes rows, and keeps them until the test calls release with the outcome of the work.
func heldRows[Tx any](t *testing.T, rows *txlock.AnyRows[int64, Tx]) (ids []int64, release func(error) error) {
	t.Helper()
	got, end := make(chan []int64, 1), make(chan error, 1)
	over := testbed.Go(func() error {
		return rows.Do(background, func(_ context.Context, _ Tx, ids []int64) error {
			got <- ids
			return <-end
		})
	})
	return testbed.Receive(t, got), func(err error) error {
		end <- err
		return testbed.Receive(t, over)
	}
}

// AnyRowsApart shows that no two sessions get one row, and that each job is done once.
func AnyRowsApart[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	fixtures := []*testbed.Fixture[Tx]{testbed.NewFixture(t, e, c), testbed.NewFixture(t, e, c)}
	const number = 120
	table := jobs(t, fixtures[0], number)
	var mu sync.Mutex
	busy := map[int64]bool{}
	mark := func(ids []int64, busily bool) (err error) {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range ids {
			if busy[id] == busily {
				err = fmt.Errorf("job %d has two at a time", id)
			}
			busy[id] = busily
		}
		return err
	}
	contend(t, 8, 1, func(i int) (err error) {
		f := fixtures[i%2]
		rows, work := readyOf(f, table).Limit(1+i%3).Retry(3), finish(f, table)
		for err == nil {
			err = rows.Do(background, func(ctx context.Context, tx Tx, ids []int64) error {
				if !slices.IsSorted(ids) || len(ids) > 1+i%3 {
					return fmt.Errorf("they are %v", ids)
				}
				if err := mark(ids, true); err != nil {
					return err
				}
				defer mark(ids, false)
				return work(ctx, tx, ids)
			})
		}
		if errors.Is(err, txlock.ErrNotAcquired) {
			return nil // others have all that are left
		}
		return err
	})
	require.Equal(t, number, fixtures[0].Total(t, "SELECT COUNT(*) FROM "+table+" WHERE state = 'done' AND done = 1"))
}

// AnyRowsOrder shows which rows are taken while others have some, and that none free is told at
// once.
func AnyRowsOrder[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, there := testbed.NewFixture(t, e, c), testbed.NewFixture(t, e, c)
	table := jobs(t, f, 5)
	first, releaseFirst := heldRows(t, readyOf(f, table).Limit(2))
	require.Equal(t, []int64{1, 2}, first)
	last, releaseLast := heldRows(t, txlock.Any[int64](there.Locks, table, "id", ready+" DESC -- all"))
	require.Equal(t, []int64{5}, last)
	rest, releaseRest := heldRows(t, readyOf(there, table).Limit(256))
	require.Equal(t, []int64{3, 4}, rest)

	never := func(context.Context, Tx, []int64) error {
		t.Error("the work must not run")
		return nil
	}
	for _, f := range []*testbed.Fixture[Tx]{f, there} {
		err := readyOf(f, table).Limit(3).Do(background, never)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		require.Equal(t, 1, strings.Count(err.Error(), "txlock: "), err.Error())
		require.ErrorContains(t, err, "AnyRows.Do "+table)
		require.NoError(t, f.Locks.Mutex(f.Key("apart")).Do(background, idle[Tx]))
		testbed.Misses(t, f.Locks.Rows(table, "id", 2)) // locks of named rows meet these
		require.NoError(t, testbed.ErrorOf(f.Locks.Inspect(background)))
	}
	require.ErrorIs(t, releaseLast(errWork), errWork)
	five, releaseFive := heldRows(t, readyOf(f, table).Limit(2))
	require.Equal(t, []int64{5}, five, "the work has failed")
	require.NoError(t, releaseFive(nil))
	require.NoError(t, releaseFirst(nil))
	require.PanicsWithValue(t, "boom", func() {
		_ = readyOf(f, table).Do(background, func(ctx context.Context, tx Tx, ids []int64) error {
			require.NoError(t, finish(f, table)(ctx, tx, ids))
			panic("boom")
		})
	})
	again, releaseAgain := heldRows(t, readyOf(there, table))
	require.Equal(t, []int64{1}, again, "nobody has finished it")
	require.NoError(t, releaseAgain(nil))
	require.NoError(t, releaseRest(nil))
	lock := testbed.Lock(t, f.Locks.Rows(table, "id", 1, 2, 3, 4, 5))
	require.ErrorIs(t, readyOf(f, table).Do(background, never), txlock.ErrNotAcquired)
	require.ErrorIs(t, readyOf(f, table).Do(lock.Context(), never), txlock.ErrInsideLock)
	testbed.Unlock(t, lock)
	f.AsAdmin(t, "DELETE FROM "+table)
	require.ErrorIs(t, readyOf(f, table).Do(background, never), txlock.ErrNotAcquired)
}

// AnyRowsKeys shows that keys of text and arguments of any type come as they are.
func AnyRowsKeys[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	type account string
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "name varchar(20) primary key, price double precision, secret "+
		map[bool]string{true: "bytea", false: "varbinary(20)"}[e.Postgres])
	f.AsAdmin(t, "INSERT INTO "+table+" (name, price) VALUES ('a''?', 0.5), ('日本 $1', 1.5), ('-- #x', 2.5)")
	f.AsAdmin(t, "UPDATE "+table+" SET secret = "+map[bool]string{true: `'\x00ff27'`, false: "x'00ff27'"}[e.Postgres]+
		" WHERE price = 2.5")
	for want, of := range map[account]struct {
		where string
		args  []any
	}{
		"a'?":   {"name = {1} OR secret = {2}", []any{"a'?", "no such"}},
		"日本 $1": {"price > {1} AND price < {2}", []any{0.75, 2}},
		"-- #x": {
			"name <> 'a''?' AND name <> '日本 $1' AND {1} < price AND secret = {2}",
			[]any{int8(1), []byte("\x00\xff'")},
		},
	} {
		for n, sign := range []string{"$1", "$2"} {
			if !e.Postgres {
				sign = "?"
			}
			of.where = strings.Replace(of.where, fmt.Sprintf("{%d}", n+1), sign, 1)
		}
		rows := txlock.Any[account](f.Locks, table, "name", of.where+" ORDER BY name", of.args...).Limit(9)
		require.NoError(t, rows.Do(background, func(_ context.Context, _ Tx, names []account) error {
			require.Equal(t, []account{want}, names)
			return nil
		}), "%q", want)
	}
}

// AnyRowsNested shows that rows which are taken in the work of a Do belong to its transaction.
func AnyRowsNested[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, there := testbed.NewFixture(t, e, c), testbed.NewFixture(t, e, c)
	table := jobs(t, f, 4)
	rows, work := readyOf(f, table), finish(f, table)
	one, release := heldRows(t, readyOf(there, table))
	require.Equal(t, []int64{1}, one)
	require.NoError(t, f.Locks.Mutex(f.Key("outer")).Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, rows.Do(ctx, func(ctx context.Context, tx Tx, ids []int64) error {
			require.Equal(t, []int64{2}, ids)
			return work(ctx, tx, ids)
		}))
		require.ErrorIs(t, rows.Do(ctx, func(ctx context.Context, tx Tx, ids []int64) error {
			require.Equal(t, []int64{3}, ids)
			return errors.Join(work(ctx, tx, ids), errWork)
		}), errWork)
		require.NoError(t, rows.Limit(2).Do(ctx, func(ctx context.Context, tx Tx, ids []int64) error {
			require.Equal(t, []int64{3, 4}, ids)
			return work(ctx, tx, ids[1:])
		}))
		never := txlock.Any[int64](f.Locks, table, "id", "id = 1")
		require.ErrorIs(t, never.Do(ctx, work), txlock.ErrNotAcquired)
		require.ErrorContains(t, txlock.Any[int64](f.Locks, table, "id", "nonesuch = 1").Do(ctx, work), "nonesuch")
		return f.Exec(ctx, tx, "UPDATE "+table+" SET state = 'left' WHERE id = 3")
	}))
	if e.Postgres { // elsewhere the next savepoint replaces it
		err := f.Locks.Mutex(f.Key("outer")).Do(background, func(ctx context.Context, tx Tx) error {
			require.ErrorIs(t, rows.Do(ctx, work), txlock.ErrNotAcquired)
			return f.Exec(ctx, tx, "RELEASE SAVEPOINT txlock_1")
		})
		require.ErrorContains(t, err, `savepoint "txlock_1" does not exist`)
	}
	require.NoError(t, release(nil))
	require.Equal(t, 6, f.Total(t, "SELECT SUM(id) FROM "+table+" WHERE state = 'done' AND done = 1"))
	require.Equal(t, 3, f.Total(t, "SELECT id FROM "+table+" WHERE state = 'left'"))
}

// AnyRowsEnd shows that what is lost commits nothing, and that ctx ends a wait for a table that is
// changed.
func AnyRowsEnd[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := jobs(t, f, 1)
	rows, work := readyOf(f, table), finish(f, table)
	err := rows.Do(background, func(ctx context.Context, tx Tx, ids []int64) error {
		require.NoError(t, work(ctx, tx, ids))
		f.KillSession(t, tx)
		return nil
	})
	require.ErrorIs(t, err, txlock.ErrLost)
	ctx, cancel := context.WithCancel(background)
	require.ErrorIs(t, rows.Do(ctx, func(ctx context.Context, tx Tx, ids []int64) error {
		defer cancel()
		return work(ctx, tx, ids)
	}), context.Canceled)
	require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table+" WHERE state = 'ready' AND done = 0"))

	keepOut, letIn := "LOCK TABLES "+table+" WRITE", "UNLOCK TABLES"
	if e.Postgres {
		keepOut, letIn = "LOCK TABLE "+table+" IN ACCESS EXCLUSIVE MODE", "SELECT 1"
	}
	// On MySQL this session changes no row: it would be in the way of the one that waits.
	guest := testbed.NewFixture(t, e, c).Guest(t)
	require.NoError(t, f.Exec(background, guest, keepOut))
	ctx, cancel = context.WithCancel(background)
	defer cancel()
	ended := testbed.Go(func() error { return rows.Do(ctx, work) })
	eventually.Every(t, "it waits", testbed.PollEvery, func() bool {
		if e.Postgres {
			return f.Waiting(t) == 1
		}
		return f.Total(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '"+f.Label+
			"' AND state LIKE 'Waiting for table metadata lock'") == 1
	})
	cancel()
	err = testbed.Receive(t, ended)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	require.NoError(t, f.Exec(background, guest, letIn))
	require.NoError(t, f.End(background, guest, false))
	require.NoError(t, rows.Do(background, work))
}

// AnyRowsRefused shows that what makes no sense is an error, and changes nothing.
func AnyRowsRefused[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := jobs(t, f, 1)
	of := func(where string, args ...any) *txlock.AnyRows[int64, Tx] {
		return txlock.Any[int64](f.Locks, table, "id", where, args...)
	}
	never := func(context.Context, Tx, []int64) error {
		t.Error("the work must not run")
		return nil
	}
	for text, rows := range map[string]*txlock.AnyRows[int64, Tx]{
		"names of a table":           txlock.Any[int64](f.Locks, "", "id", "id = 1"),
		"that is the lock table":     txlock.Any[int64](f.Locks, e.Table(), "slot", "slot = 1"),
		"Limit(0)":                   of(ready).Limit(0),
		"Limit(257)":                 of(ready).Limit(257),
		"Retry(0)":                   of(ready).Retry(0),
		"argument 2 of Any: a <nil>": of("id = 1", 1, nil),
		"a backslash, a comment":     of(`state <> '\\' AND id = 1`, 1),
		"nonesuch":                   of("nonesuch = 1"),
		"not of integers":            txlock.Any[int64](f.Locks, table, "state", ready),
		"valid UTF-8":                of(map[bool]string{true: "state = $1", false: "state = ?"}[e.Postgres], "\xff"),
		table + "_none":              txlock.Any[int64](f.Locks, table+"_none", "id", ready),
		"syntax":                     of(ready + " LIMIT 5"),
	} {
		err := rows.Do(background, never)
		require.ErrorContains(t, err, text)
		require.NotErrorIs(t, err, txlock.ErrNotAcquired)
		require.NotErrorIs(t, err, txlock.ErrNotInstalled)
		require.Equal(t, 1, strings.Count(err.Error(), "txlock: "), err.Error())
	}
	one := map[bool]string{true: "id = $1", false: "id = ?"}[e.Postgres]
	wrong := []*txlock.AnyRows[int64, Tx]{of(one), of(one+" AND id < $2", 1), of(" ")}
	if !e.Postgres { // where one too many may be left out
		wrong = append(wrong, of(one, 1, 2))
	}
	for _, bad := range wrong {
		require.Error(t, bad.Do(background, never))
	}
	require.ErrorContains(t, of(ready).Do(background, nil), "nil work")
	require.NoError(t, of(ready).Do(background, finish(f, table)))
}
