package guarantees

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// InstallTogether shows that ten replicas install at once.
func InstallTogether[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, name := testbed.NewFixtureWithTable(t, e, c)
	start := time.Now()
	var group errgroup.Group
	for range 10 {
		group.Go(func() error { return f.Locks.Install(background) })
	}
	require.NoError(t, group.Wait())
	seeding := time.Since(start)
	t.Logf("ten installations at once took %v", seeding.Round(time.Millisecond))
	require.Equal(t, 65536, f.Total(t, "SELECT COUNT(*) FROM "+name))
	require.Equal(t, 65535, f.Total(t, "SELECT MAX(slot) FROM "+name))
	f.Free(t, f.Key("a"))
	again := time.Hour
	for range 3 { // a machine that stalls makes one of them late
		start = time.Now()
		require.NoError(t, f.Locks.Install(background))
		again = min(again, time.Since(start))
	}
	require.Less(t, again, seeding)
}

// InstallAgain shows that Install completes a half-seeded table and refuses another number of
// slots.
func InstallAgain[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, name := testbed.NewFixtureWithTable(t, e, c, txlock.WithSlots(1000))
	require.NoError(t, f.Locks.Install(background))
	require.Equal(t, 1000, f.Total(t, "SELECT COUNT(*) FROM "+name))
	// Empty or cut short, as a crash leaves it; or without the slot.
	for _, damage := range []string{
		"DELETE FROM " + name, "DELETE FROM " + name + " WHERE slot > 500",
		"DELETE FROM " + name + fmt.Sprintf(" WHERE slot = %d", testbed.SlotOf("k", 1000)),
	} {
		f.AsAdmin(t, damage)
		fresh := testbed.NewSizedFixture(t, e, c, 4, "", txlock.WithTable(name))
		_, err := fresh.Locks.Mutex("k").Lock(background)
		require.ErrorIs(t, err, txlock.ErrNotInstalled)
		require.ErrorIs(t, fresh.Locks.Check(background), txlock.ErrNotInstalled)
		require.NoError(t, f.Locks.Install(background))
		require.Equal(t, 1000, f.Total(t, "SELECT COUNT(*) FROM "+name))
		fresh.Free(t, "k")
	}
	for _, slots := range []int{999, 1001, 65536} {
		other := testbed.NewSizedFixture(t, e, c, 4, "", txlock.WithTable(name), txlock.WithSlots(slots))
		require.ErrorContains(t, other.Locks.Install(background), "installed with 1000 slots")
		other.Free(t, "k") // the number in the table counts
	}
	require.Equal(t, 1000, f.Total(t, "SELECT COUNT(*) FROM "+name))
	unasked := testbed.NewSizedFixture(t, e, c, 4, "", txlock.WithTable(name))
	require.NoError(t, unasked.Locks.Install(background))
	require.Equal(t, 1000, f.Total(t, "SELECT COUNT(*) FROM "+name))
	// An installation does not wait for a holder of a row that is there.
	lock, err := f.Locks.Mutex("k").Lock(background)
	require.NoError(t, err)
	f.AsAdmin(t, "DELETE FROM "+name+fmt.Sprintf(" WHERE slot = %d", (int(testbed.SlotOf("k", 1000))+1)%1000))
	require.NoError(t, f.Locks.Install(background))
	require.NoError(t, lock.Unlock(background))
}

// NotInstalled shows that a table that is missing, incomplete or of another shape is
// ErrNotInstalled.
func NotInstalled[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, name := testbed.NewFixtureWithTable(t, e, c, txlock.WithSlots(64))
	all := func() map[string]error {
		_, lock := f.Locks.Mutex("k").Lock(background)
		_, try := f.Locks.Mutex("k").TryLock(background)
		tx := f.Guest(t)
		lockTx := f.Locks.Mutex("k").LockTx(background, tx)
		require.NoError(t, f.Exec(background, tx, "SELECT 1"))
		require.NoError(t, f.End(background, tx, false))
		return map[string]error{
			"Lock": lock, "TryLock": try, "LockTx": lockTx, "Check": f.Locks.Check(background),
			"Do": f.Locks.Mutex("k").Do(background, func(context.Context, Tx) error { return nil }),
		}
	}
	for verb, err := range all() {
		require.ErrorIs(t, err, txlock.ErrNotInstalled, verb)
		require.ErrorContains(t, err, "run install", verb)
	}
	f.AsAdmin(t, "CREATE TABLE "+name+" (id int primary key)")
	for verb, err := range all() {
		require.ErrorIs(t, err, txlock.ErrNotInstalled, verb)
	}
	require.ErrorIs(t, f.Locks.Install(background), txlock.ErrNotInstalled)
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+name))
	f.AsAdmin(t, "DROP TABLE "+name)
	require.NoError(t, f.Locks.Install(background))
	f.Free(t, "k")
	// Dropped while a client is running.
	f.AsAdmin(t, "DROP TABLE "+name)
	for verb, err := range all() {
		require.ErrorIs(t, err, txlock.ErrNotInstalled, verb)
	}
	require.NoError(t, f.Locks.Install(background))
	f.Free(t, "k")
}

// SlotsChanged shows that clients that disagree on the number of slots get an error.
func SlotsChanged[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, name := testbed.NewFixtureWithTable(t, e, c, txlock.WithSlots(64))
	require.NoError(t, f.Locks.Install(background))
	f.Free(t, "k")
	f.AsAdmin(t, "DROP TABLE "+name)
	other := testbed.NewSizedFixture(t, e, c, 4, "", txlock.WithTable(name), txlock.WithSlots(128))
	require.NoError(t, other.Locks.Install(background))
	_, err := f.Locks.Mutex("k").Lock(background) // with the old number of slots
	require.ErrorIs(t, err, txlock.ErrNotInstalled)
	lock, err := f.Locks.Mutex("k").Lock(background) // the number was read again
	require.NoError(t, err)
	_, err = other.Locks.Mutex("k").TryLock(background)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	require.NoError(t, lock.Unlock(background))
}

// SchemaText shows that Schema is what Install does.
func SchemaText[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, name := testbed.NewFixtureWithTable(t, e, c, txlock.WithSlots(300))
	statements := strings.Split(strings.TrimSpace(f.Locks.Schema()), ";")
	last := len(statements) - 1
	require.Empty(t, statements[last])
	for range 2 { // idempotent
		for _, statement := range statements[:last] {
			f.AsAdmin(t, statement)
		}
	}
	require.Equal(t, 300, f.Total(t, "SELECT COUNT(*) FROM "+name))
	f.Free(t, "k")
	require.NoError(t, f.Locks.Check(background))
	require.NoError(t, f.Locks.Election("of Schema", "me").Lead(background, func(context.Context, int64) error {
		return nil
	}))
	require.NoError(t, f.Locks.Install(background))
	require.Contains(t, testbed.NewSizedFixture(t, e, c, 1, "").Locks.Schema(), "65536")
}

// TableNames shows that names in quotes and with a schema work, broken ones are errors.
func TableNames[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	quote := map[bool]string{true: `"`, false: "`"}[e.Postgres]
	schema := f.Label
	if e.Postgres {
		f.AsAdmin(t, "CREATE SCHEMA "+schema)
		t.Cleanup(func() { f.AsAdmin(t, "DROP SCHEMA "+schema+" CASCADE") })
	}
	quoted := func(name string) string {
		return quote + strings.ReplaceAll(name, quote, quote+quote) + quote
	}
	for _, table := range []struct{ spelled, sql string }{
		{schema + ".order", schema + "." + quoted("order")}, // a reserved word
		{schema + "." + quoted("My Locks; --"), schema + "." + quoted("My Locks; --")},
		{quoted(schema) + "." + quoted("a.b"+quote+"c"), schema + "." + quoted("a.b"+quote+"c")},
		{schema + ".with space", schema + "." + quoted("with space")},
	} {
		other := testbed.NewSizedFixture(t, e, c, 4, "", txlock.WithTable(table.spelled), txlock.WithSlots(4))
		require.NoError(t, other.Locks.Install(background), table.spelled)
		require.Equal(t, 4, f.Total(t, "SELECT COUNT(*) FROM "+table.sql))
		// Only the named slots are locked, also in a tiny table.
		lock, err := other.Locks.Mutex(keysOfSlots(4, 0, 1, 2)...).Lock(background)
		require.NoError(t, err)
		other.Free(t, keysOfSlots(4, 3)...)
		other.Taken(t, keysOfSlots(4, 2)...)
		require.NoError(t, lock.Unlock(background))
		require.NoError(t, other.Locks.Mutex("k").Do(background, func(context.Context, Tx) error { return nil }))
		require.NoError(t, other.Locks.Check(background))
	}
	for _, broken := range []string{
		quote, quote + "a", "a" + quote + "b", "a.", ".a", "a..b", "a.b.c", quote + quote, "a;'b", "nul\x00", "\xff",
	} {
		other := testbed.NewSizedFixture(t, e, c, 4, "", txlock.WithTable(broken))
		require.ErrorContains(t, other.Locks.Install(background), "invalid name", "%q", broken)
		require.ErrorContains(t, other.Locks.Check(background), "invalid name")
		_, err := other.Locks.Mutex("k").Lock(background)
		require.ErrorContains(t, err, "invalid name")
		requireNoSchema(t, other.Locks.Schema(), "invalid name")
		_, err = f.Locks.Rows(broken, "id", 1).Lock(background)
		require.ErrorContains(t, err, "invalid name")
		_, err = f.Locks.Rows("t", broken, 1).Lock(background)
		require.ErrorContains(t, err, "invalid name")
	}
}

// keysOfSlots finds a key for each slot.
func keysOfSlots(n int, slots ...uint32) []string {
	keys := make([]string, len(slots))
	for i, slot := range slots {
		for try := 0; ; try++ {
			keys[i] = fmt.Sprintf("key%d", try)
			if testbed.SlotOf(keys[i], n) == slot {
				break
			}
		}
	}
	return keys
}

// BadInput shows that bad input is an error and changes nothing.
func BadInput[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	for text, m := range map[string]*txlock.Mutex[Tx]{
		"no key":                  f.Locks.Mutex(),
		"a key is empty":          f.Locks.Mutex("a", ""),
		"must be positive":        f.Locks.Mutex("a").Within(-time.Second),
		"Within(0s)":              f.Locks.Mutex("a").Within(0),
		"at least one value":      f.Locks.Rows("t", "c"),
		"names of a table":        f.Locks.Rows("", "c", 1),
		"value 2 of Rows":         f.Locks.Rows("t", "c", 1, nil),
		"a struct {} cannot name": f.Locks.Rows("t", "c", struct{}{}),
		"that is the lock table":  f.Locks.Rows(e.Table(), "slot", 1),
		"a column":                f.Locks.Rows("t", "", 1),
		"valid UTF-8":             f.Locks.Rows("t", "c", "\xff"), // found when the statement is spelled
	} {
		_, err := m.Lock(background)
		require.ErrorContains(t, err, text)
		_, err = m.TryLock(background)
		require.ErrorContains(t, err, text)
		ran := func(context.Context, Tx) error {
			t.Error("the work must not run")
			return nil
		}
		require.ErrorContains(t, m.Do(background, ran), text)
		require.ErrorContains(t, m.TryDo(background, ran), text)
		tx := f.Guest(t)
		require.ErrorContains(t, m.LockTx(background, tx), text)
		require.ErrorContains(t, m.TryLockTx(background, tx), text)
		require.NoError(t, f.End(background, tx, false))
		require.True(t, strings.HasPrefix(err.Error(), "txlock: TryLock"), err.Error())
		require.Equal(t, 1, strings.Count(err.Error(), "txlock: "), err.Error())
	}
	driver, p := c.Connect(t, e.DSNFor(f.Label, "", nil), 2)
	defer p.Close()
	for text, option := range map[string]txlock.Option{
		"WithSlots(0)": txlock.WithSlots(0), "WithSlots(-1)": txlock.WithSlots(-1),
		"WithSlots(1048577)": txlock.WithSlots(1<<20 + 1),
		"empty name":         txlock.WithTable(""), "WithLease": txlock.WithLease(0),
		"nil logger": txlock.WithLogger(nil),
		"nil tracer": txlock.WithTracer(nil), "nil option": nil,
		"WithQueue(0)": txlock.WithQueue(0), "WithQueue(-1)": txlock.WithQueue(-1),
	} {
		locks := txlock.New(driver, option)
		require.ErrorContains(t, locks.Install(background), text)
		require.ErrorContains(t, locks.Check(background), text)
		_, err := locks.Mutex("k").Lock(background)
		require.ErrorContains(t, err, text)
		requireNoSchema(t, locks.Schema(), text)
	}
	good := txlock.New(driver, txlock.WithTable(e.Table()), txlock.WithLease(time.Minute), txlock.WithFencing(),
		txlock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, good.Mutex(f.Key("k")).Do(background, func(context.Context, Tx) error { return nil }))
	require.NoError(t, good.Close())

	var none dialects.Driver[Tx]
	locks := txlock.New(none)
	require.ErrorContains(t, locks.Install(background), "nil driver")
	requireNoSchema(t, locks.Schema(), "nil driver")
	require.NoError(t, locks.Close())
}

// requireNoSchema requires a text of Schema that says why and has nothing to run: one comment, also
// for a tool that splits it at semicolons.
func requireNoSchema(t *testing.T, schema, why string) {
	require.Regexp(t, `^-- txlock: schema: [^;\r\n]+\n$`, schema)
	require.Contains(t, schema, why)
}

func manyKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	return keys
}

// CheckAccepts shows that Check accepts this engine.
func CheckAccepts[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, _ := testbed.NewFixtureWithTable(t, e, c)
	require.NoError(t, f.Locks.Install(background))
	require.NoError(t, f.Locks.Check(background))
	// Also while somebody holds many slots.
	lock, err := f.Locks.Mutex(manyKeys(256)...).Lock(background)
	require.NoError(t, err)
	require.NoError(t, f.Locks.Check(background))
	require.NoError(t, lock.Unlock(background))
	alone := testbed.NewSizedFixture(t, e, c, 1, "")
	ctx, cancel := context.WithTimeout(background, 300*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, alone.Locks.Check(ctx), context.DeadlineExceeded)
	// Without a deadline Check's own limit ends it.
	err = alone.Locks.Check(background)
	require.ErrorContains(t, err, "no second connection", "one connection cannot prove anything")
	require.NotErrorIs(t, err, txlock.ErrUnsafeEngine)
	require.NoError(t, alone.Locks.Install(background))
}
