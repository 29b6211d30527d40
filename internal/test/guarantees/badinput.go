package guarantees

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

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
