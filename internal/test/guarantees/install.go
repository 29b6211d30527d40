package guarantees

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
)

// InstallTogether shows that ten replicas install at once.
func InstallTogether[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, name := testbed.NewFixtureWithTable(t, e, c)
	var group errgroup.Group
	for range 10 {
		group.Go(func() error { return f.Locks.Install(background) })
	}
	require.NoError(t, group.Wait())
	require.Equal(t, 65536, f.Total(t, "SELECT COUNT(*) FROM "+name))
	require.Equal(t, 65535, f.Total(t, "SELECT MAX(slot) FROM "+name))
	f.Free(t, f.Key("a"))
}

// InstallAgain shows that Install completes a half-seeded table and refuses another number of
// slots.
func InstallAgain[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, name := testbed.NewInstalled(t, e, c, txlock.WithSlots(1000))
	require.Equal(t, 1000, f.Total(t, "SELECT COUNT(*) FROM "+name))
	// Empty or cut short, as a crash leaves it; or without the slot.
	for _, damage := range []string{
		"DELETE FROM " + name, "DELETE FROM " + name + " WHERE slot > 500",
		"DELETE FROM " + name + fmt.Sprintf(" WHERE slot = %d", testbed.SlotOf("k", 1000)),
	} {
		f.AsAdmin(t, damage)
		fresh := testbed.NewSizedFixture(t, e, c, 4, "", txlock.WithTable(name))
		require.ErrorIs(t, testbed.ErrorOf(fresh.Locks.Mutex("k").Lock(background)), txlock.ErrNotInstalled)
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
	lock := testbed.Lock(t, f.Locks.Mutex("k"))
	f.AsAdmin(t, "DELETE FROM "+name+fmt.Sprintf(" WHERE slot = %d", (int(testbed.SlotOf("k", 1000))+1)%1000))
	require.NoError(t, f.Locks.Install(background))
	testbed.Unlock(t, lock)
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
			"Do": f.Locks.Mutex("k").Do(background, idle[Tx]),
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

// KindsNotInstalled shows that what another version has not installed is ErrNotInstalled for its
// kind alone, and that Install mends it.
func KindsNotInstalled[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewInstalled(t, e, c, txlock.WithSlots(16), txlock.WithFencing())
	plain := testbed.NewSizedFixture(t, e, c, 4, "", txlock.WithTable(table))
	lead := func(context.Context, int64) error { return nil }
	for _, kind := range []struct {
		tables []string
		call   func() error
	}{
		{[]string{"_leaders"}, func() error { return f.Locks.Election("e", "me").Lead(background, lead) }},
		{[]string{"_leaders"}, func() error {
			_, err := f.Locks.Election("e", "me").Leader(background)
			if errors.Is(err, txlock.ErrNoLeader) {
				err = nil
			}
			return err
		}},
		{[]string{"_once"}, func() error { _, err := f.Locks.Once("o").Do(background, idle[Tx]); return err }},
		{[]string{"_claims"}, func() error { _, err := f.Locks.Claim("c").State(background); return err }},
		{[]string{"_claims"}, func() error {
			return testbed.ErrorOf(f.Locks.Claim("c").Take(background, "me", time.Hour))
		}},
		{[]string{"_permits"}, func() error { return f.Locks.Semaphore("s", 2).Do(background, idle[Tx]) }},
		{[]string{"_runs", "_epochs"}, func() error { // as before tokens came
			lock, err := f.Locks.Mutex("k").Lock(background)
			if err == nil {
				require.Positive(t, lock.Token())
				err = lock.Unlock(background)
			}
			return err
		}},
	} {
		require.NoError(t, kind.call())
		for _, name := range kind.tables {
			f.AsAdmin(t, "DROP TABLE "+table+name)
		}
		err := kind.call()
		require.ErrorIs(t, err, txlock.ErrNotInstalled, kind.tables)
		require.ErrorContains(t, err, "run install", kind.tables)
		plain.Free(t, "k")
		require.NoError(t, f.Locks.Install(background))
		require.NoError(t, kind.call(), kind.tables)
	}
}

// SlotsChanged shows that clients that disagree on the number of slots get an error.
func SlotsChanged[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, name := testbed.NewInstalled(t, e, c, txlock.WithSlots(64))
	f.Free(t, "k")
	f.AsAdmin(t, "DROP TABLE "+name)
	other := testbed.NewSizedFixture(t, e, c, 4, "", txlock.WithTable(name), txlock.WithSlots(128))
	require.NoError(t, other.Locks.Install(background))
	_, err := f.Locks.Mutex("k").Lock(background) // with the old number of slots
	require.ErrorIs(t, err, txlock.ErrNotInstalled)
	lock := must.Get(f.Locks.Mutex("k").Lock(background))(t) // the number was read again
	testbed.Misses(t, other.Locks.Mutex("k"))
	testbed.Unlock(t, lock)
}

// SchemaText shows that Schema is what Install does.
func SchemaText[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, name := testbed.NewFixtureWithTable(t, e, c, txlock.WithSlots(300))
	statements := strings.Split(strings.TrimSpace(f.Locks.Schema()), ";")
	last := len(statements) - 1
	require.Empty(t, statements[last])
	session, err := f.Admin.Conn(background)
	require.NoError(t, err)
	defer session.Close()
	for range 2 { // idempotent
		for _, statement := range statements[:last] {
			database.Exec(t, session, statement)
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
	quoted := func(name string) string { return quote + strings.ReplaceAll(name, quote, quote+quote) + quote }
	tables := []struct{ spelled, sql string }{
		{schema + ".order", schema + "." + quoted("order")}, // a reserved word
		{schema + "." + quoted("My Locks; --"), schema + "." + quoted("My Locks; --")},
		{quoted(schema) + "." + quoted("a.b"+quote+"c"), schema + "." + quoted("a.b"+quote+"c")},
		{schema + ".with space", schema + "." + quoted("with space")},
	}
	if !e.Postgres { // a name like arguments of statements
		tables = append(tables, struct{ spelled, sql string }{schema + ".`who? $1 {}`", schema + ".`who? $1 {}`"})
	}
	for _, table := range tables {
		other := testbed.NewSizedFixture(t, e, c, 4, "", txlock.WithTable(table.spelled), txlock.WithSlots(4))
		require.NoError(t, other.Locks.Install(background), table.spelled)
		require.Equal(t, 4, f.Total(t, "SELECT COUNT(*) FROM "+table.sql))
		// Only the named slots are locked, also in a tiny table.
		lock := testbed.Lock(t, other.Locks.Mutex(keysOfSlots(4, 0, 1, 2)...))
		other.Free(t, keysOfSlots(4, 3)...)
		other.Taken(t, keysOfSlots(4, 2)...)
		testbed.Unlock(t, lock)
		require.NoError(t, other.Locks.Mutex("k").Do(background, idle[Tx]))
		require.NoError(t, other.Locks.Check(background))
		testbed.Unlock(t, testbed.Lock(t, other.Locks.Semaphore("api", 2)))
		claimed := testbed.Take(t, other.Locks.Claim("seat"), "me $1 ? {}", time.Minute)
		require.NoError(t, claimed.Do(background, idle[Tx]))
		require.True(t, must.Get(other.Locks.Once("job").Do(background, idle[Tx]))(t))
		require.ErrorIs(t, testbed.ErrorOf(other.Locks.Election("e", "me").Leader(background)), txlock.ErrNoLeader)
	}
	for _, broken := range []string{
		quote, quote + "a", "a" + quote + "b", "a.", ".a", "a..b", "a.b.c", quote + quote, "a;'b", "nul\x00", "\xff",
	} {
		other := testbed.NewSizedFixture(t, e, c, 4, "", txlock.WithTable(broken))
		require.ErrorContains(t, other.Locks.Install(background), "invalid name", "%q", broken)
		require.ErrorContains(t, other.Locks.Check(background), "invalid name")
		require.ErrorContains(t, testbed.ErrorOf(other.Locks.Mutex("k").Lock(background)), "invalid name")
		requireNoSchema(t, other.Locks.Schema(), "invalid name")
		require.ErrorContains(t, testbed.ErrorOf(f.Locks.Rows(broken, "id", 1).Lock(background)), "invalid name")
		require.ErrorContains(t, testbed.ErrorOf(f.Locks.Rows("t", broken, 1).Lock(background)), "invalid name")
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

func manyKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	return keys
}

// CheckAccepts shows that Check accepts this engine.
func CheckAccepts[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, _ := testbed.NewInstalled(t, e, c)
	require.NoError(t, f.Locks.Check(background))
	// Also while somebody holds many slots.
	lock := testbed.Lock(t, f.Locks.Mutex(manyKeys(256)...))
	require.NoError(t, f.Locks.Check(background))
	testbed.Unlock(t, lock)
	alone := testbed.NewSizedFixture(t, e, c, 1, "")
	ctx, cancel := context.WithTimeout(background, 300*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, alone.Locks.Check(ctx), context.DeadlineExceeded)
	// Without a deadline Check's own limit ends it.
	err := alone.Locks.Check(background)
	require.ErrorContains(t, err, "no second connection", "one connection cannot prove anything")
	require.NotErrorIs(t, err, txlock.ErrUnsafeEngine)
	require.NoError(t, alone.Locks.Install(background))
}

// Pinged shows that Ping finds a lock table that is missing or empty, waits for no lock, and leaves
// no transaction open.
func Pinged[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, name := testbed.NewFixtureWithTable(t, e, c, txlock.WithSlots(4))
	require.ErrorIs(t, f.Locks.Ping(background), txlock.ErrNotInstalled)
	require.NoError(t, f.Locks.Install(background))
	require.NoError(t, f.Locks.Ping(background))
	lock := testbed.Lock(t, f.Locks.Mutex(keysOfSlots(4, 0, 1, 2, 3)...))
	require.NoError(t, f.Locks.Ping(background))
	testbed.Unlock(t, lock)
	driver, p := c.Connect(t, e.DSNFor(f.Label, "", nil), 1)
	defer p.Close()
	guest, keepOut := f.Guest(t), "LOCK TABLES "+name+" WRITE"
	if e.Postgres {
		keepOut = "LOCK TABLE " + name + " IN ACCESS EXCLUSIVE MODE"
	}
	require.NoError(t, f.Exec(background, guest, keepOut))
	fresh := txlock.New(driver, txlock.WithTable(name))
	for what, call := range map[string]func(context.Context) error{
		"Ping": f.Locks.Ping,
		"Lock": func(ctx context.Context) error { return testbed.ErrorOf(fresh.Mutex("a").Lock(ctx)) },
	} {
		ctx, cancel := context.WithCancelCause(background)
		time.AfterFunc(100*time.Millisecond, func() { cancel(txlock.ErrLost) })
		err := call(ctx)
		require.ErrorIs(t, err, context.Canceled, what)
		require.NotErrorIs(t, err, txlock.ErrLost, "%s: that is another's", what)
	}
	if !e.Postgres {
		require.NoError(t, f.Exec(background, guest, "UNLOCK TABLES"))
	}
	require.NoError(t, f.End(background, guest, false))
	f.AsAdmin(t, "DELETE FROM "+name)
	require.ErrorIs(t, f.Locks.Ping(background), txlock.ErrNotInstalled)
	f.Transactions(t, 0)
	f.DropInstalled(t, name)
	require.ErrorIs(t, f.Locks.Ping(background), txlock.ErrNotInstalled)

	ctx, cancel := context.WithCancel(background)
	cancel()
	require.ErrorIs(t, f.Locks.Ping(ctx), context.Canceled)
	closed := txlock.New(driver, txlock.WithLease(time.Minute))
	require.NoError(t, closed.Close())
	require.ErrorContains(t, closed.Ping(background), "closed")
}
