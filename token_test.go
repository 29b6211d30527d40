package txlock_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
)

var installFences sync.Map // of engines, once

func newFencingFixture[Tx any](t *testing.T, e *engine, c client[Tx]) *fixture[Tx] {
	t.Helper()
	f := newSizedFixture(t, e, c, poolSize, "", txlock.WithFencing())
	installed, _ := installFences.LoadOrStore(e, new(sync.Once))
	installed.(*sync.Once).Do(func() { require.NoError(t, f.locks.Install(background)) })
	return f
}

// tokensIncrease: over keys, sessions, tries, rows and nested locks, and whatever the last holder
// did with its transaction.
func tokensIncrease[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFencingFixture(t, e, c)
	other := newFencingFixture(t, e, c)
	table := f.makeTable(t, "id int primary key")
	f.admitted(t, "INSERT INTO "+table+" VALUES (1), (2)")
	last := int64(0)
	later := func(lock *txlock.Lock, err error) *txlock.Lock {
		t.Helper()
		require.NoError(t, err)
		require.Greater(t, lock.Token(), last)
		last = lock.Token()
		return lock
	}
	for range 3 {
		for _, locks := range []*txlock.Locker[Tx]{f.locks, other.locks} {
			for _, m := range []*txlock.Mutex[Tx]{
				locks.Mutex(f.key("a")), locks.Mutex(f.key("b")), locks.Mutex(f.key("a"), f.key("b"), f.key("c")),
				locks.Rows(table, "id", 1), locks.Rows(table, "id", 2, 1),
			} {
				lock := later(m.Lock(background))
				nested := later(locks.Mutex(f.key("nested")).Lock(lock.Context()))
				again, err := m.Lock(lock.Context())
				require.NoError(t, err)
				require.Equal(t, lock.Token(), again.Token(), "the same hold")
				for _, handle := range []*txlock.Lock{lock, nested, again} {
					require.NoError(t, handle.Unlock(background))
				}
				lock = later(m.TryLock(background))
				_, err = m.TryLock(background)
				require.ErrorIs(t, err, txlock.ErrNotAcquired)
				require.NoError(t, lock.Unlock(background))
				require.ErrorIs(t, m.Do(background, func(ctx context.Context, _ Tx) error {
					nested := later(locks.Mutex(f.key("nested")).Lock(ctx))
					own := later(m.Lock(ctx)) // whose rows the Do has locked without a token
					require.NoError(t, nested.Unlock(ctx))
					require.NoError(t, own.Unlock(ctx))
					return errWork
				}), errWork)
			}
		}
	}
}

// tokensInOrder: holders of one key, in the order in which they held it.
func tokensInOrder[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFencingFixture(t, e, c)
	var tokens []int64 // guarded by the lock
	var group errgroup.Group
	for range 12 {
		group.Go(func() error {
			for range 15 {
				lock, err := f.locks.Mutex(f.key("one")).Lock(background)
				if err != nil {
					return err
				}
				tokens = append(tokens, lock.Token())
				if err := lock.Unlock(background); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	require.Len(t, tokens, 12*15)
	for i := range tokens[1:] {
		require.Greater(t, tokens[i+1], tokens[i])
	}
}

func fenceMissing[Tx any](t *testing.T, e *engine, c client[Tx]) {
	table := tableOf(e, fmt.Sprintf("unfenced_%d_%d", os.Getpid(), labels.Add(1)))
	f := newSizedFixture(t, e, c, 4, "", txlock.WithFencing(), txlock.WithTable(table))
	plain := newSizedFixture(t, e, c, 4, "", txlock.WithTable(table), txlock.WithSlots(16))
	for _, locks := range []*txlock.Locker[Tx]{plain.locks, f.locks} {
		_, err := f.locks.Mutex(f.key("a")).Lock(background)
		require.ErrorIs(t, err, txlock.ErrNotInstalled)
		require.NoError(t, locks.Install(background))
	}
	lock, err := f.locks.Mutex(f.key("a")).Lock(background)
	require.NoError(t, err)
	require.Positive(t, lock.Token())
	require.NoError(t, lock.Unlock(background))
	require.Contains(t, f.locks.Schema(), "_runs")
	require.NotContains(t, plain.locks.Schema(), "_runs")
	f.dropFenced(t, table)
}

func (e *engine) dropFenced(t *testing.T, table string) {
	t.Helper()
	e.admitted(t, "DROP TABLE "+table+", "+table+"_runs, "+table+"_epochs")
	if e.postgres {
		e.admitted(t, "DROP SEQUENCE "+table+"_tokens")
	}
}

// runOf is the number of the server's run in a token.
func runOf(token int64) int64 { return token >> 40 }

// newRun: the table that a crash empties is empty, and many find it so at once; or holds what is
// not of this run of this server.
func newRun[Tx any](t *testing.T, e *engine, c client[Tx]) {
	runs := tableOf(e, "txlock_slots_runs")
	spoilt := []string{"DELETE FROM " + runs}
	if !e.postgres {
		spoilt = append(spoilt,
			// brought here by a dump, from a server that started later
			"UPDATE "+runs+" SET start = 18446744073709551615",
			"UPDATE "+runs+" SET start = 1", // or long before
			// another has taken over since
			"REPLACE INTO "+runs+" (epoch, server, start) SELECT MAX(epoch) + 1, 4242, 1 FROM "+tableOf(
				e, "txlock_slots_epochs"),
		)
	}
	for _, spoil := range spoilt {
		former := newFencingFixture(t, e, c)
		lock, err := former.locks.Mutex(former.key("a")).Lock(background)
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(background))
		if strings.Contains(spoil, "4242") { // its number is drawn, too
			former.admitted(t, "INSERT INTO "+tableOf(e, "txlock_slots_epochs")+" VALUES ()")
			t.Cleanup(func() { former.admitted(t, "DELETE FROM "+runs+" WHERE server = 4242") })
		}
		former.admitted(t, spoil)

		f := newFencingFixture(t, e, c)
		tokens := make([]int64, 8)
		var group errgroup.Group
		for i := range tokens {
			group.Go(func() error {
				lock, err := f.locks.Mutex(f.key(fmt.Sprint(i))).Lock(background)
				if err != nil {
					return err
				}
				tokens[i] = lock.Token()
				return lock.Unlock(background)
			})
		}
		require.NoError(t, group.Wait(), spoil)
		slices.Sort(tokens)
		require.Len(t, slices.Compact(slices.Clone(tokens)), len(tokens), "no token is given twice")
		require.Greater(t, runOf(tokens[0]), runOf(lock.Token()), spoil)
		require.Equal(t, runOf(tokens[0]), runOf(tokens[len(tokens)-1]), "all of one run")
	}
}

// twoFences: sessions of one pool take their tokens from two lock tables in turn.
func twoFences[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFencingFixture(t, e, c)
	driver, pool := c.connect(t, e.dsn(f.label, "", nil), 1)
	t.Cleanup(pool.close)
	table := tableOf(e, fmt.Sprintf("fenced_%d_%d", os.Getpid(), labels.Add(1)))
	first := txlock.New(driver, txlock.WithTable(e.table()), txlock.WithFencing())
	second := txlock.New(driver, txlock.WithTable(table), txlock.WithSlots(4), txlock.WithFencing())
	require.NoError(t, second.Install(background))
	t.Cleanup(func() { e.dropFenced(t, table) })
	// Its runs are to be numbered far behind those of the other table, of which other tests draw
	// some.
	draw := "INSERT INTO " + table + "_epochs VALUES (1000)"
	if e.postgres {
		draw = "INSERT INTO " + table + "_epochs (begun) SELECT false FROM generate_series(1, 1000)"
	}
	e.admitted(t, draw)
	last := map[*txlock.Locker[Tx]]int64{}
	check := func(locks *txlock.Locker[Tx], token int64) {
		t.Helper()
		require.Greater(t, token, last[locks])
		if last[locks] > 0 {
			require.Equal(t, runOf(last[locks]), runOf(token))
		}
		last[locks] = token
	}
	alone := func(locks *txlock.Locker[Tx]) {
		lock, err := locks.Mutex(f.key("a")).Lock(background)
		require.NoError(t, err)
		check(locks, lock.Token())
		require.NoError(t, lock.Unlock(background))
	}
	inWork := func(locks *txlock.Locker[Tx]) {
		require.NoError(t, locks.Mutex(f.key("b")).Do(background, func(ctx context.Context, _ Tx) error {
			lock, err := locks.Mutex(f.key("c")).Lock(ctx)
			require.NoError(t, err)
			check(locks, lock.Token())
			return lock.Unlock(ctx)
		}))
	}
	// The first token of a run takes a second connection, where the first one is at work.
	begin := newSizedFixture(t, e, c, 2, "", txlock.WithTable(table), txlock.WithFencing())
	lock, err := begin.locks.Mutex(f.key("a")).Lock(background)
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(background))
	for range 3 {
		alone(first)
		inWork(second)
		alone(first)
		inWork(first)
		alone(second)
		inWork(first)
		inWork(second)
	}
	require.NotEqual(t, runOf(last[first]), runOf(last[second]))
}

// tableOf is a table beside the lock table.
func tableOf(e *engine, name string) string {
	return e.table()[:len(e.table())-len("txlock_slots")] + name
}

func badLeases[Tx any](t *testing.T, e *engine, c client[Tx]) {
	least := time.Second
	if e.postgres {
		least = time.Millisecond
	}
	for _, lease := range []time.Duration{0, -time.Second, 25 * 24 * time.Hour, least - 1} {
		f := newSizedFixture(t, e, c, 2, "", txlock.WithLease(lease), txlock.WithTable(tableOf(e, "never")))
		require.ErrorContains(t, f.locks.Install(background), "WithLease("+lease.String()+")")
		_, err := f.locks.Mutex("a").Lock(background)
		require.ErrorContains(t, err, "WithLease("+lease.String()+")")
		_, err = f.admin.Exec("SELECT 1 FROM " + tableOf(e, "never"))
		require.Error(t, err, "nothing is created")
	}
	f := newSizedFixture(t, e, c, 2, "", txlock.WithLease(24*24*time.Hour))
	lock, err := f.locks.Mutex(f.key("long")).Lock(background)
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(background))
}
