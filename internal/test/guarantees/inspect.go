package guarantees

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
)

// InspectShows shows that Inspect shows the holder and the waiters, in their order.
func InspectShows[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	key := f.Key("inspected")
	require.Empty(t, f.Look(t, key), "nobody holds it")
	before := time.Now().Add(-1100 * time.Millisecond) // MariaDB knows whole seconds
	session, release := f.HoldInDo(t, key)
	granted := f.Queue(t, 3, key)

	asked := time.Now()
	holdings := f.Look(t, key)
	took := time.Since(asked)
	require.Len(t, holdings, 1)
	h := holdings[0]
	require.Equal(t, f.Table(), h.Table)
	require.Empty(t, h.Column)
	require.Regexp(t, `^\d+$`, h.Row)
	require.Equal(t, key, h.Key)
	require.NotNil(t, h.Holder)
	require.Equal(t, session, h.Holder.ID)
	require.True(t, h.Holder.Idle)
	require.NotEmpty(t, h.Holder.User)
	require.NotEmpty(t, h.Holder.Host)
	require.False(t, h.Holder.Since.Before(before), "%v, %v", h.Holder.Since, before)
	require.False(t, h.Holder.Since.After(time.Now().Add(time.Second)))
	if e.Tells {
		require.Equal(t, key, h.Holder.Key)
		require.Equal(t, os.Getpid(), h.Holder.Process)
		require.Contains(t, strings.ToUpper(h.Holder.Statement), strings.ToUpper(e.SessionSQL()))
	}
	require.Len(t, h.Waiters, 3)
	longest := time.Hour
	for _, w := range h.Waiters {
		if e.Postgres { // one clock reading for all; elsewhere one for each waiter
			took = 0
			require.WithinDuration(t, h.Holder.Since.Add(h.Holder.For), w.Since.Add(w.For), 2*time.Microsecond)
		}
		require.Equal(t, key, w.Key)
		require.Equal(t, os.Getpid(), w.Process)
		require.False(t, w.Idle)
		if e.Postgres {
			require.True(t, strings.Contains(w.Statement, "pg_advisory_xact_lock") || len(w.Statement) >= 1000,
				"of a longer one PostgreSQL shows the beginning")
		} else {
			require.Contains(t, strings.ToLower(w.Statement), "for update")
		}
		require.LessOrEqual(t, w.For, longest+took, "in the order of the queue")
		longest = w.For
	}

	// The queue is served in the order shown.
	require.NoError(t, release())
	for _, next := range h.Waiters {
		lock := <-granted
		now := f.Look(t, key)
		require.Len(t, now, 1)
		require.Equal(t, next.ID, now[0].Holder.ID)
		testbed.Unlock(t, lock)
	}
	require.Empty(t, f.Look(t, key))
	unlabelled(t, f)
}

// InspectNested: joined keys show as well, released ones do not.
func InspectNested[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	few, _ := f.FewSlots(t)
	// in slots of their own, and short enough for PostgreSQL to show them all
	const outer, inner, odd = "o", "i", "q'é*"
	look := func() (holdings []txlock.Holding) {
		f.Apart(func() {
			holdings = must.Get(few.Inspect(background, outer, inner, odd))(t)
		})
		return holdings
	}
	lock := testbed.Lock(t, few.Mutex(outer))
	nested := testbed.LockIn(t, lock.Context(), few.Mutex(inner))
	other := testbed.TryLock(t, few.Mutex(odd))
	_, err := few.Mutex(odd).TryLock(lock.Context()) // a try that misses shows nothing
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	var holdings []txlock.Holding
	eventually.True(t, "each holder is known", func() bool { // a slow MariaDB may not say so at first
		holdings = look()
		return !e.Tells || !slices.ContainsFunc(holdings, func(h txlock.Holding) bool { return h.Holder.ID == "" })
	})
	require.Len(t, holdings, 3)
	sessions := map[string]string{}
	for _, h := range holdings {
		require.NotNil(t, h.Holder)
		require.Empty(t, h.Waiters)
		sessions[h.Key] = h.Holder.ID
	}
	if e.Tells {
		require.Len(t, sessions, 3)
		require.Contains(t, sessions, inner)
		require.Contains(t, sessions, odd)
		require.Equal(t, sessions[outer], sessions[inner])
		require.NotEqual(t, sessions[outer], sessions[odd])
	}
	testbed.Unlock(t, other)
	require.Len(t, look(), 2)
	testbed.Unlock(t, nested, lock)
	require.Empty(t, look())
	unlabelled(t, f)
}

// unlabelled shows that no session in the pool still says that it locks something.
func unlabelled[Tx any](t *testing.T, f *testbed.Fixture[Tx]) {
	t.Helper()
	if !f.Postgres {
		return // it says so in statements alone
	}
	var n int
	require.NoError(t, f.Admin.QueryRow(`SELECT COUNT(*) FROM pg_stat_activity
		WHERE split_part(application_name, '#', 1) = $1 AND application_name LIKE '%#%'`, f.Label).Scan(&n))
	require.Zero(t, n)
}

// InspectTx shows that Inspect shows locks in callers' transactions, and rows of their tables.
func InspectTx[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	key := f.Key("tx")
	table := f.MakeTable(t, "sku int primary key", "(1), (2)")
	rows := f.Locks.Rows(table, "sku", 1, 2)
	tx := c.Begin(t, f.DSNFor(f.Label, "", nil), 0)
	require.NoError(t, f.Locks.Mutex(key).LockTx(background, tx))
	granted := f.Queue(t, 1, key)
	h := f.Look(t, key)
	require.Len(t, h, 1)
	require.NotNil(t, h[0].Holder)
	require.Equal(t, key, h[0].Key, "its waiter says so")
	require.Len(t, h[0].Waiters, 1)
	require.NoError(t, c.End(background, tx, false))
	lock := <-granted

	// Rows of the caller's own table show with their values.
	owner := testbed.Lock(t, rows)
	waiting := testbed.Granted(t, f.Locks.Rows(table, "sku", 2))
	f.Waiters(t, 1)
	shown := map[string]txlock.Holding{}
	for _, h := range f.LookAtRows(t) {
		if h.Table == table {
			shown[h.Row] = h
		}
	}
	require.Contains(t, shown, "2")
	require.Equal(t, "sku", shown["2"].Column)
	require.NotNil(t, shown["2"].Holder)
	require.Len(t, shown["2"].Waiters, 1)
	if e.ListsHeld() {
		require.Contains(t, shown, "1")
		require.Equal(t, shown["2"].Holder.ID, shown["1"].Holder.ID)
		require.Empty(t, shown["1"].Waiters)
	}
	testbed.Unlock(t, owner)
	require.NoError(t, (<-waiting).Unlock(background))
	testbed.Unlock(t, lock)
}

// Breaks shows that Break ends the holder that was shown, and no other.
func Breaks[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	log := &testbed.Logbook{}
	f := testbed.NewSizedFixture(t, e, c, testbed.PoolSize, "", log.Option())
	key := f.Key("stuck")
	table := f.MakeTable(t, "id int primary key")
	done, _ := f.StartWork(key, table)
	granted := f.Queue(t, 1, key)
	stuck := f.Look(t, key)[0]
	breakIt := func(holding txlock.Holding) (err error) {
		f.Apart(func() { err = f.Locks.Break(background, holding) })
		return err
	}
	require.NoError(t, breakIt(stuck))
	require.ErrorIs(t, <-done, txlock.ErrLost)
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
	eventually.Every(t, "both ends are in the log", time.Millisecond, func() bool { return len(log.Records(t)) == 2 })
	for _, record := range log.Records(t) { // one of the breaker, one of the loser
		require.Contains(t, record["lock"], key)
	}
	next := <-granted

	// What was shown has ended: a second Break harms nobody.
	err := breakIt(stuck)
	require.ErrorIs(t, err, txlock.ErrNotHeld)
	require.ErrorContains(t, err, key[:10])
	require.NoError(t, next.Context().Err())
	testbed.Unlock(t, next)
	err = f.Locks.Break(background, txlock.Holding{})
	require.ErrorIs(t, err, txlock.ErrNotHeld)
	require.NotContains(t, err.Error(), "slot")
	require.ErrorIs(t, f.Locks.Break(background, txlock.Holding{Table: stuck.Table, Row: stuck.Row}), txlock.ErrNotHeld)
	require.ErrorIs(t, f.Locks.Break(background, txlock.Holding{Holder: &txlock.Session{ID: "1"}}), txlock.ErrNotHeld)

	// The same session in its next transaction is another holder.
	one := testbed.NewSizedFixture(t, e, c, 1, "")
	key = one.Key("again")
	first := testbed.Lock(t, one.Locks.Mutex(key))
	shown := f.Look(t, key)[0]
	testbed.Unlock(t, first)
	again := testbed.Lock(t, one.Locks.Mutex(key))
	require.ErrorIs(t, breakIt(shown), txlock.ErrNotHeld)
	require.NoError(t, again.Context().Err())
	testbed.Unlock(t, again)
}

// InspectRefuses shows that Inspect and Break refuse what makes no sense.
func InspectRefuses[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	require.ErrorContains(t, testbed.ErrorOf(f.Locks.Inspect(background, "")), "empty")
	ended, cancel := context.WithCancel(background)
	cancel()
	require.ErrorIs(t, testbed.ErrorOf(f.Locks.Inspect(ended)), context.Canceled)
	driver, p := f.Connect(t, f.DSNFor(f.Label, "", nil), 1)
	defer p.Close()
	_, err := txlock.New(driver, txlock.WithTable("no_such_table")).Inspect(background)
	require.ErrorIs(t, err, txlock.ErrNotInstalled)
	require.NoError(t, f.Locks.Close())
	require.ErrorContains(t, testbed.ErrorOf(f.Locks.Inspect(background)), "closed")
	require.ErrorContains(t, f.Locks.Break(background, txlock.Holding{}), "closed")
}

// InspectReaders shows that Inspect shows all that share a lock, and who waits to share, and that
// Break ends the one reader that it is given.
func InspectReaders[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, keys := sharing(t, e, c, 1)
	m := f.Locks.Mutex(keys[0])
	var readers []*txlock.Lock
	for range 3 {
		readers = append(readers, testbed.TryLock(t, m.Shared()))
	}
	look := func() txlock.Holding {
		t.Helper()
		holdings := f.Look(t, keys[0])
		require.Len(t, holdings, 1)
		return holdings[0]
	}
	h := look()
	require.Nil(t, h.Holder)
	require.Empty(t, h.Waiters)
	if e.MariaDB && h.Readers[0].ID == "" { // neighbours share other rows, and the server does not say who
		h.Holder = &h.Readers[0]
		require.ErrorContains(t, f.Locks.Break(background, h), "did not say by which session")
		testbed.Unlock(t, readers...)
		return
	}
	require.Len(t, h.Readers, 3)
	ids := map[string]bool{}
	for _, reader := range h.Readers {
		require.True(t, reader.Shared)
		ids[reader.ID] = true
		if e.Tells {
			require.Equal(t, keys[0], reader.Key)
		}
	}
	require.ErrorContains(t, f.Locks.Break(background, h), "3 sessions hold it together")
	require.Len(t, ids, 3)

	waits := []<-chan error{testbed.LockLater(m)}
	f.Waiters(t, 1)
	waits = append(waits, testbed.LockLater(m.Shared()))
	f.Waiters(t, 2)
	h = look()
	require.Len(t, h.Readers, 3)
	require.Len(t, h.Waiters, 2)
	require.False(t, h.Waiters[0].Shared)
	require.True(t, h.Waiters[1].Shared)
	if h.Readers[1].ID == "" { // as above, by now
		require.True(t, e.MariaDB)
		testbed.Unlock(t, readers...)
		for _, waited := range waits {
			require.NoError(t, testbed.Receive(t, waited))
		}
		return
	}

	broken := h.Readers[1]
	h.Holder = &broken
	require.NoError(t, f.Locks.Break(background, h))
	require.ErrorIs(t, f.Locks.Break(background, h), txlock.ErrNotHeld)
	f.Waiters(t, 2)
	h = look()
	require.Len(t, h.Readers, 2)
	lost := 0
	for _, reader := range readers {
		if err := reader.Unlock(background); err != nil {
			require.ErrorIs(t, err, txlock.ErrLost)
			lost++
		}
	}
	require.Equal(t, 1, lost)
	for _, waited := range waits {
		require.NoError(t, testbed.Receive(t, waited))
	}
}

// SharedOfHeld shows that a shared try of rows does not miss because others wait for those of them
// that the session has alone already.
func SharedOfHeld[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, keys := sharing(t, e, c, 2, txlock.WithFencing())
	table, _ := things(t, f, 2)
	for name, of := range map[string]struct{ one, both *txlock.Mutex[Tx] }{
		"keys": {f.Locks.Mutex(keys[0]), f.Locks.Mutex(keys...)},
		"rows": {f.Locks.Rows(table, "id", 1), f.Locks.Rows(table, "id", 1, 2)},
	} {
		var waits <-chan error
		// The first token numbers the server's run, which may wait: not in the Do.
		testbed.Unlock(t, testbed.Lock(t, of.one))
		require.NoError(t, of.one.Do(background, func(ctx context.Context, _ Tx) error { // which has no token
			waits = testbed.LockLater(of.one)
			f.Waiters(t, 1)
			lock, err := of.both.Shared().TryLock(ctx)
			require.NoError(t, err, name)
			require.Positive(t, lock.Token())
			require.NoError(t, of.both.Shared().TryDo(ctx, idle[Tx]), name)
			testbed.Misses(t, of.one.Shared())
			testbed.Unlock(t, lock)
			return nil
		}))
		require.NoError(t, testbed.Receive(t, waits))
	}
}
