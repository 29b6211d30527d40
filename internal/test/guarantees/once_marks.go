package guarantees

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// clock is the server's, in whole seconds.
func clock[Tx any](t *testing.T, f *testbed.Fixture[Tx]) int64 {
	if f.Postgres {
		return int64(f.Total(t, "SELECT FLOOR(EXTRACT(epoch FROM clock_timestamp()))::bigint"))
	}
	return int64(f.Total(t, "SELECT TIMESTAMPDIFF(SECOND, '1970-01-01', UTC_TIMESTAMP(6))"))
}

// OncePer shows that work runs once in each window of the database's clock, and that a waiter which
// crossed the end of a window belongs to the next one.
func OncePer[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	fixtures := []*testbed.Fixture[Tx]{testbed.NewFixture(t, e, c), testbed.NewFixture(t, e, c)}
	f := fixtures[0]
	const day, longest = 24 * time.Hour, 292 * 365 * 24 * time.Hour
	key := f.OnceKey("per", oncePrefix+"1s:", oncePrefix, oncePrefix+day.String()+":", oncePrefix+longest.String()+":")
	var runs atomic.Int64
	var group errgroup.Group
	begin := clock(t, f)
	for i := range 4 {
		o := fixtures[i%2].Locks.Once(key).Per(time.Second)
		group.Go(func() error {
			for {
				ran, err := o.Do(background, idle[Tx])
				if err != nil {
					return err
				}
				if ran {
					runs.Add(1)
				}
				if clock(t, f) >= begin+2 {
					return nil
				}
			}
		})
	}
	require.NoError(t, group.Wait())
	end := clock(t, f)
	require.GreaterOrEqual(t, runs.Load(), int64(1), "the window within")
	require.LessOrEqual(t, runs.Load(), end-begin+1)

	o := f.Locks.Once(key).Per(time.Second)
	eventually.True(t, "a new window", func() bool {
		return !testbed.IsDone(t, o)
	})
	first := startOnce(t, o)
	second := onceLater(o, idle[Tx])
	f.Waiters(t, 1)
	now := clock(t, f)
	eventually.True(t, "the next window", func() bool { return clock(t, f) > now })
	first.end <- nil
	require.Equal(t, onceResult{true, nil}, testbed.Receive(t, first.over))
	require.Equal(t, onceResult{true, nil}, testbed.Receive(t, second))

	// Windows of another length, and none, are other work.
	for _, other := range []*txlock.Once[Tx]{o.Per(day), o.Per(longest), f.Locks.Once(key)} {
		doneOnce(t, other)
	}
}

// OnceTx shows that of several transactions that mark the same work one is first, at each isolation
// level that locks, and that neighbours are not held up.
func OnceTx[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	f.Free(t, f.Key("slots"))
	levels := []sql.IsolationLevel{sql.LevelReadCommitted}
	dsn := f.DSNFor(f.Label, "", nil)
	if !f.Postgres {
		levels = append(levels, sql.LevelRepeatableRead)
		dsn = f.DSNFor(f.Label, "", url.Values{"clientFoundRows": {"true"}})
	}
	for _, level := range levels {
		for _, period := range []time.Duration{0, 24 * time.Hour} {
			prefix := oncePrefix
			if period > 0 {
				prefix += period.String() + ":"
			}
			names := make([]string, 9)
			for i := range names {
				names[i] = f.OnceKey(level.String(), prefix)
			}
			key := func(i int) *txlock.Once[Tx] {
				o := f.Locks.Once(names[i])
				if period > 0 {
					o = o.Per(period)
				}
				return o
			}
			mark := func(o *txlock.Once[Tx], tx Tx, want bool) {
				t.Helper()
				first, err := o.DoTx(background, tx)
				require.NoError(t, err)
				require.Equal(t, want, first)
			}
			begin := func() (Tx, func()) {
				tx, leave, err := f.Start(dsn, level)
				require.NoError(t, err)
				return tx, leave
			}
			old, leaveOld := begin()
			if !f.Postgres { // it takes its snapshot
				require.NoError(t, testbed.ErrorOf(f.Query(background, old, "SELECT COUNT(*) FROM "+e.Table()+"_once")))
			}
			for _, commit := range []bool{false, true} {
				one, leaveOne := begin()
				two, leaveTwo := begin()
				mark(key(0), one, true)
				mark(key(0), one, false)
				second := make(chan onceResult, 1)
				go func() {
					first, err := key(0).DoTx(background, two)
					second <- onceResult{first, err}
				}()
				f.Waiters(t, 1)
				for i := 1; i <= 8; i++ { // keys on all sides of it, which another transaction marks meanwhile
					other, leave := begin()
					mark(key(i), other, true)
					require.NoError(t, f.End(background, other, i == 8))
					leave()
				}
				require.NoError(t, f.End(background, one, commit))
				require.Equal(t, onceResult{!commit, nil}, testbed.Receive(t, second))
				require.NoError(t, f.End(background, two, false))
				leaveOne()
				leaveTwo()
				require.NoError(t, key(8).Forget(background))
			}
			if level == sql.LevelRepeatableRead && e.RefusesOldSnapshots(t) {
				require.ErrorIs(t, testbed.ErrorOf(key(0).DoTx(background, old)), txlock.ErrDeadlock)
			} else {
				mark(key(0), old, false)
			}
			require.NoError(t, f.End(background, old, true))
			leaveOld()
		}
	}
	if f.Postgres {
		tx := f.Begin(t, dsn, sql.LevelRepeatableRead)
		_, err := f.Locks.Once(f.OnceKey("stale", oncePrefix)).DoTx(background, tx)
		require.ErrorIs(t, err, txlock.ErrIsolation)
		require.NoError(t, f.Exec(background, tx, "SELECT 1"))
		require.NoError(t, f.End(background, tx, true))
	}
}

// OnceForgets shows what Done, Forget and Sweep do.
func OnceForgets[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewInstalled(t, e, c, txlock.WithSlots(64))
	markers := func() int { return f.Total(t, "SELECT COUNT(*) FROM "+table+"_once") }
	o := f.Locks.Once("forgets")
	do := func(o *txlock.Once[Tx], want bool) {
		t.Helper()
		ran, err := o.Do(background, idle[Tx])
		require.NoError(t, err)
		require.Equal(t, want, ran)
	}
	require.NoError(t, o.Forget(background), "what is not there")
	before := time.Now().Add(-time.Minute)
	do(o, true)
	at, done, err := o.Done(background)
	require.NoError(t, err)
	require.True(t, done)
	require.WithinRange(t, at, before, time.Now().Add(time.Minute))
	require.NoError(t, o.Forget(background))
	require.Zero(t, markers())

	first := startOnce(t, o)
	forgotten := testbed.Go(func() error { return o.Forget(background) })
	f.Waiters(t, 1)
	first.end <- nil
	require.Equal(t, onceResult{true, nil}, testbed.Receive(t, first.over))
	require.NoError(t, testbed.Receive(t, forgotten))
	require.Zero(t, markers())

	// Several sweep at once, while old work of a period runs anew.
	const old = 2300
	text := "(marker, done_at) SELECT sha256(n::text::bytea), now() - interval '2 days'"
	add := " FROM generate_series(1, %d) n"
	if !f.Postgres {
		text = "(marker, done_at, run) SELECT UNHEX(SHA2(n, 256)), UTC_TIMESTAMP(6) - INTERVAL 2 DAY, 0"
		add = " FROM (SELECT a.slot * 64 + b.slot + 1 n FROM " + table + " a CROSS JOIN " + table +
			" b) s WHERE n <= %d"
	}
	f.AsAdmin(t, "INSERT INTO "+table+"_once "+text+fmt.Sprintf(add, old))
	per := o.Per(time.Second)
	do(per, true)
	ageMarkers(t, f, table)
	do(f.Locks.Once("fresh"), true)
	first = startOnce(t, per)
	require.Equal(t, old+2, markers())
	var swept atomic.Int64
	var group errgroup.Group
	for range 3 {
		group.Go(func() error {
			n, err := f.Locks.Sweep(background, 24*time.Hour)
			swept.Add(n)
			return err
		})
	}
	require.NoError(t, group.Wait())
	first.end <- nil
	require.Equal(t, onceResult{true, nil}, testbed.Receive(t, first.over))
	n, err := f.Locks.Sweep(background, 24*time.Hour)
	require.NoError(t, err)
	require.EqualValues(t, old+1, swept.Load()+n)
	require.Equal(t, 2, markers())
	do(f.Locks.Once("fresh"), false)
	require.NoError(t, testbed.ErrorOf(f.Locks.Sweep(background, 0)))
	require.Zero(t, markers())
}

// ageMarkers makes the markers of today two days older.
func ageMarkers[Tx any](t *testing.T, f *testbed.Fixture[Tx], table string) {
	t.Helper()
	f.AsAdmin(t, "UPDATE "+table+"_once SET done_at = "+map[bool]string{
		true:  "done_at - interval '2 days' WHERE done_at > now() - interval '1 day'",
		false: "done_at - INTERVAL 2 DAY WHERE done_at > UTC_TIMESTAMP(6) - INTERVAL 1 DAY",
	}[f.Postgres])
}

// OnceRefused shows that bad input is an error and sends nothing, and that each verb says what to
// run where there is no table of markers.
func OnceRefused[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewFixtureWithTable(t, e, c, txlock.WithSlots(64))
	type once = txlock.Once[Tx]
	verbs := map[string]func(o *once) error{
		"Do":     func(o *once) error { _, err := o.Do(background, idle[Tx]); return err },
		"TryDo":  func(o *once) error { _, err := o.TryDo(background, idle[Tx]); return err },
		"Done":   func(o *once) error { _, _, err := o.Done(background); return err },
		"Forget": func(o *once) error { return o.Forget(background) },
		"DoTx": func(o *once) error {
			tx, leave, err := f.Start(f.DSNFor(f.Label, "", nil), 0)
			require.NoError(t, err)
			defer leave()
			_, failed := o.DoTx(background, tx)
			require.NoError(t, f.Exec(background, tx, "SELECT 1"))
			require.NoError(t, f.End(background, tx, false))
			return failed
		},
	}
	for verb, call := range verbs {
		for text, bad := range map[string]*once{
			"key is empty":      f.Locks.Once(""),
			"the period must":   f.Locks.Once("k").Per(time.Second - 1),
			"at least 1s":       f.Locks.Once("k").Per(-time.Hour),
			"whole micro":       f.Locks.Once("k").Per(time.Second + 1),
			"must be positive":  f.Locks.Once("k").Per(time.Hour).Within(0),
			"limit must be pos": f.Locks.Once("k").Within(-1),
		} {
			require.ErrorContains(t, call(bad), text, verb)
			require.NotErrorIs(t, call(bad), txlock.ErrNotInstalled, verb)
		}
	}
	require.ErrorContains(t, testbed.ErrorOf(f.Locks.Once("k").Do(background, nil)), "nil work")
	require.ErrorContains(t, testbed.ErrorOf(f.Locks.Sweep(background, -1)), "negative")
	require.NoError(t, f.Locks.Install(background))
	require.NoError(t, testbed.ErrorOf(f.Locks.Once("k").Do(background, idle[Tx])))

	// It waits for nobody: no transaction is left that has read the table. The
	// pool of Open would end one after 15 s.
	patience, cancel := context.WithTimeout(background, 10*time.Second)
	defer cancel()
	require.NoError(t, testbed.ErrorOf(f.Admin.ExecContext(patience, "DROP TABLE "+table+"_once")))
	for verb, call := range verbs {
		require.ErrorIs(t, call(f.Locks.Once("k")), txlock.ErrNotInstalled, verb)
	}
	require.ErrorIs(t, testbed.ErrorOf(f.Locks.Sweep(background, 0)), txlock.ErrNotInstalled)
}
