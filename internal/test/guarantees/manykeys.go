package guarantees

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// ManyKeys shows that up to 256 keys or rows are locked at once, and no others, in lock tables of
// many sizes: a server that reads all of a table would lock all of it. One more is an error, and
// nothing is sent.
func ManyKeys[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const most = 256
	for _, slots := range []int{most + 1, 1024, 4096, dialects.DefaultSlots} {
		f, _ := testbed.NewInstalled(t, e, c, txlock.WithSlots(slots))
		var held, free []string
		step := slots / most
		for slot, key := range keyOfEach(slots) {
			if slot%step == 0 && len(held) < most {
				held = append(held, key)
			} else {
				free = append(free, key)
			}
		}
		m := f.Locks.Mutex(held...)
		for _, sharing := range []bool{false, true} {
			if sharing {
				if e.IsCluster() { // which refuses it
					break
				}
				m = m.Shared()
			}
			lock := testbed.Lock(t, m)
			defer func() { _ = lock.Unlock(background) }() // a failed test drops the table
			for _, i := range []int{0, most / 2, most - 1} {
				testbed.Misses(t, f.Locks.Mutex(held[i]))
			}
			for some := range slices.Chunk(free[:min(len(free), 4096)], most) {
				testbed.Unlock(t, testbed.TryLock(t, f.Locks.Mutex(some...)))
			}
			testbed.Unlock(t, lock)
			testbed.Unlock(t, testbed.TryLock(t, m))
		}
	}

	if e.IsCluster() { // where rows have slots, and so many rows some in common
		return
	}
	f := testbed.NewFixture(t, e, c)
	table, ids := things(t, f, 2*most)
	m := f.Locks.Rows(table, "id", ids[:most]...)
	for _, m := range []*txlock.Mutex[Tx]{m, m.Shared()} {
		lock := testbed.Lock(t, m)
		testbed.Misses(t, f.Locks.Rows(table, "id", ids[most-1]))
		others := testbed.TryLock(t, f.Locks.Rows(table, "id", ids[most:]...))
		testbed.Unlock(t, others, lock)
	}
	// Several at once, which the server's lock table must hold.
	var together sync.WaitGroup
	for range 8 {
		together.Go(func() { assert.NoError(t, m.Do(background, idle[Tx])) })
	}
	together.Wait()
}

// keyOfEach finds a key for each slot of a table of so many.
func keyOfEach(slots int) []string {
	keys := make([]string, slots)
	for i, found := 0, 0; found < slots; i++ {
		key := strconv.Itoa(i)
		if slot := testbed.SlotOf(key, slots); keys[slot] == "" {
			keys[slot] = key
			found++
		}
	}
	return keys
}

// TooManyKeys shows that more than 256 keys or rows are an error, for every verb, and that nothing
// is sent.
func TooManyKeys[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, proxy := testbed.Proxied(t, e, c, 4)
	f.Free(t, f.Key("a")) // finds the lock table
	tx := f.Guest(t)
	before := proxy.Bursts()
	values := make([]any, 257)
	for i := range values {
		values[i] = i
	}
	statement := txlock.Statement{SQL: "SELECT 1"}
	for _, m := range []*txlock.Mutex[Tx]{f.Locks.Mutex(manyKeys(257)...), f.Locks.Rows("t", "id", values...)} {
		for _, m := range []*txlock.Mutex[Tx]{m, m.Shared(), m.Within(time.Minute).Retry(2)} {
			for verb, call := range map[string]func() error{
				"Lock":      func() error { _, err := m.Lock(background); return err },
				"TryLock":   func() error { _, err := m.TryLock(background); return err },
				"Do":        func() error { return m.Do(background, idle[Tx]) },
				"TryDo":     func() error { return m.TryDo(background, idle[Tx]) },
				"LockTx":    func() error { return m.LockTx(background, tx) },
				"TryLockTx": func() error { return m.TryLockTx(background, tx) },
				"Exec":      func() error { _, err := m.Exec(background, statement); return err },
			} {
				require.ErrorContains(t, call(), "257 rows at once, at most 256 are possible", verb)
			}
		}
	}
	require.Equal(t, before, proxy.Bursts(), "the server was asked")
	require.NoError(t, f.End(background, tx, false))

	// A batch is done in parts that are small enough.
	combined := txlock.Combine(func(in []string) *txlock.Mutex[Tx] { return f.Locks.Mutex(in...) },
		func(_ context.Context, _ Tx, in []string) ([]txlock.Result[int], error) {
			return make([]txlock.Result[int], len(in)), nil
		}).AtMost(300)
	var group errgroup.Group
	held := testbed.Lock(t, f.Locks.Mutex("0"))
	for _, key := range manyKeys(300) {
		group.Go(func() error { _, err := combined.Do(background, key); return err })
	}
	testbed.Unlock(t, held)
	require.NoError(t, group.Wait())
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
		require.ErrorContains(t, testbed.ErrorOf(m.Lock(background)), text)
		_, err := m.TryLock(background)
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
		require.ErrorContains(t, testbed.ErrorOf(locks.Mutex("k").Lock(background)), text)
		requireNoSchema(t, locks.Schema(), text)
	}
	good := txlock.New(driver, txlock.WithTable(e.Table()), txlock.WithLease(time.Minute), txlock.WithFencing(),
		txlock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, good.Mutex(f.Key("k")).Do(background, idle[Tx]))
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

// BadLeases shows that a lease that cannot be kept is an error and changes nothing.
func BadLeases[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	least := time.Second
	if e.Postgres {
		least = time.Millisecond
	}
	for _, lease := range []time.Duration{0, -time.Second, 25 * 24 * time.Hour, least - 1} {
		f := testbed.NewSizedFixture(t, e, c, 2, "", txlock.WithLease(lease),
			txlock.WithTable(testbed.TableOf(e, "never")))
		require.ErrorContains(t, f.Locks.Install(background), "WithLease("+lease.String()+")")
		require.ErrorContains(t, testbed.ErrorOf(f.Locks.Mutex("a").Lock(background)), "WithLease("+lease.String()+")")
		_, err := f.Admin.Exec("SELECT 1 FROM " + testbed.TableOf(e, "never"))
		require.Error(t, err, "nothing is created")
	}
	f := testbed.NewSizedFixture(t, e, c, 2, "", txlock.WithLease(24*24*time.Hour))
	testbed.Unlock(t, testbed.Lock(t, f.Locks.Mutex(f.Key("long"))))
}
