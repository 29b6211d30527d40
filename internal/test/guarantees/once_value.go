package guarantees

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

type receipt struct {
	Number int
	Text   []byte
}

type receiptResult struct {
	receipt
	ran bool
	err error
}

// answers is work that has an answer of that number.
func answers[Tx any](number int) func(context.Context, Tx) (receipt, error) {
	return func(context.Context, Tx) (receipt, error) { return receipt{number, []byte("\x00\xff")}, nil }
}

// value does work in both forms, and shows that it has the answer of that number, from this run or
// from a former one.
func value[Tx any](t *testing.T, ctx context.Context, o *txlock.Once[Tx], payload string, number int, ran bool) {
	t.Helper()
	first, did, err := txlock.OnceValue(ctx, o, []byte(payload), answers[Tx](number))
	require.NoError(t, err)
	require.Equal(t, ran, did)
	again, did, err := txlock.TryOnceValue(ctx, o, []byte(payload), answers[Tx](-1))
	require.NoError(t, err)
	require.False(t, did)
	require.Equal(t, []receipt{{number, []byte("\x00\xff")}, first}, []receipt{first, again})
}

// valueError is the error of a call.
func valueError[T, Tx any](o *txlock.Once[Tx], payload string, answer T) error {
	_, _, err := txlock.OnceValue(background, o, []byte(payload), func(context.Context, Tx) (T, error) {
		return answer, nil
	})
	return err
}

// ValueKept shows who gets the answer of the first time, and for how long it is kept.
func ValueKept[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewInstalled(t, e, c, txlock.WithSlots(64))
	o := f.Locks.Once("kept")
	value(t, background, o, "pay 5", 1, true)
	value(t, background, f.Locks.Once("kept").Within(time.Minute).Retry(1), "pay 5", 1, false)
	require.ErrorIs(t, valueError(o, "pay 6", receipt{}), txlock.ErrOtherPayload)
	require.ErrorContains(t, valueError(o, "pay 5", 7), "cannot unmarshal")
	value(t, background, o, "pay 5", 1, false)
	ran, err := o.Do(background, idle[Tx])
	require.NoError(t, err)
	require.False(t, ran)

	require.NoError(t, o.Forget(background))
	value(t, background, o, "pay 6", 2, true)
	ageMarkers(t, f, table)
	swept, err := f.Locks.Sweep(background, 24*time.Hour)
	require.NoError(t, err)
	require.EqualValues(t, 1, swept)
	value(t, background, o, "", 3, true)

	// The answer of a window is not that of the next, whoever does the work then.
	daily := f.Locks.Once("daily").Per(24 * time.Hour)
	mark := map[string]func(){
		"Do": func() { require.NoError(t, testbed.ErrorOf(daily.Do(background, idle[Tx]))) },
		"DoTx": func() {
			tx := f.Guest(t)
			first, err := daily.DoTx(background, tx)
			require.NoError(t, err)
			require.True(t, first)
			require.NoError(t, f.End(background, tx, true))
		},
	}
	for verb, do := range mark {
		for _, payload := range []string{"today", "tomorrow"} {
			value(t, background, daily, payload, len(payload), true)
			ageMarkers(t, f, table)
		}
		do()
		for _, payload := range []string{"today", "tomorrow"} {
			require.ErrorContains(t, valueError(daily, payload, receipt{}), "which keep no answer", verb)
		}
		ageMarkers(t, f, table)
	}
	require.ErrorContains(t, valueError(f.Locks.Once(""), "", 1), "key is empty")
	_, _, err = txlock.TryOnceValue[int](background, o, nil, nil)
	require.ErrorContains(t, err, "nil work")
}

// ValueTogether shows what duplicates get that come while the work runs.
func ValueTogether[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	o := f.Locks.Once(f.OnceKey("together", oncePrefix))
	begun, end := make(chan struct{}), make(chan struct{})
	results := make(chan receiptResult, 2)
	call := func(work func(context.Context, Tx) (receipt, error)) {
		got, ran, err := txlock.OnceValue(background, o, nil, work)
		results <- receiptResult{got, ran, err}
	}
	go call(func(context.Context, Tx) (receipt, error) {
		close(begun)
		<-end
		return receipt{Number: 1}, nil
	})
	testbed.Receive(t, begun)
	go call(answers[Tx](2))
	f.Waiters(t, 1)
	got, ran, err := txlock.TryOnceValue(background, o, nil, answers[Tx](3))
	require.Equal(t, receiptResult{}, receiptResult{got, ran, nil})
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	require.ErrorIs(t, valueError(o.Within(20*time.Millisecond), "other", 4), txlock.ErrNotAcquired)
	close(end)
	first, second := testbed.Receive(t, results), testbed.Receive(t, results)
	require.NotEqual(t, first.ran, second.ran)
	first.ran = second.ran
	require.Equal(t, receiptResult{receipt: receipt{Number: 1}, ran: first.ran}, first)
	require.Equal(t, first, second)
}

// ValueFails shows that neither answer nor marker is left by work that fails, nor by an answer that
// cannot be kept, and that the largest one can.
func ValueFails[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "n int")
	o := f.Locks.Once(f.OnceKey("fails", oncePrefix))
	failing := func(answer any, then func(tx Tx) error) error {
		got, ran, err := txlock.OnceValue(background, o, nil, func(ctx context.Context, tx Tx) (any, error) {
			require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
			return answer, then(tx)
		})
		require.Nil(t, got)
		require.False(t, ran)
		return err
	}
	nothing := func(Tx) error { return nil }
	require.Equal(t, errWork, failing(1, func(Tx) error { return errWork }))
	require.PanicsWithValue(t, "boom", func() { _ = failing(1, func(Tx) error { panic("boom") }) })
	require.ErrorIs(t, failing(1, func(tx Tx) error {
		f.KillSession(t, tx)
		return nil
	}), txlock.ErrLost)
	large := strings.Repeat("x", 1<<20-len(`""`))
	require.ErrorContains(t, failing(large+"x", nothing), "1048577 bytes")
	require.ErrorContains(t, failing(math.NaN(), nothing), "NaN")
	require.ErrorContains(t, valueError(o, "", errors.New("of no type that JSON can read")), "cannot unmarshal")
	require.False(t, testbed.IsDone(t, o))
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
	for _, want := range []bool{true, false} {
		got, ran, err := txlock.OnceValue(background, o, nil, func(context.Context, Tx) (string, error) {
			return large, nil
		})
		require.NoError(t, err)
		require.Equal(t, want, ran)
		require.True(t, got == large)
	}
}

// ValueNested shows that in the work of a Do the answer shares the fate of that Do, and that the
// work itself has none while it runs.
func ValueNested[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	outer, o := f.Locks.Mutex(f.Key("outer")), f.Locks.Once(f.OnceKey("nested", oncePrefix))
	for i, end := range []error{errWork, nil} {
		require.Equal(t, end, outer.Do(background, func(ctx context.Context, _ Tx) error {
			value(t, ctx, o, "inside", i, true)
			_, _, err := txlock.OnceValue(ctx, o, []byte("other"), answers[Tx](3))
			require.ErrorIs(t, err, txlock.ErrOtherPayload)
			return end
		}))
		require.Equal(t, end == nil, testbed.IsDone(t, o))
	}
	value(t, background, o, "inside", 1, false)
	require.NoError(t, o.Forget(background))
	_, ran, err := txlock.OnceValue(background, o, nil, func(ctx context.Context, _ Tx) (receipt, error) {
		got, ran, err := txlock.OnceValue(ctx, o, nil, answers[Tx](3))
		require.Zero(t, got)
		require.False(t, ran)
		return got, err
	})
	require.ErrorContains(t, err, "under way")
	require.False(t, ran)
	value(t, background, o, "", 4, true)
}

// ValueInstalled shows that tables without answers, as version 0.1 has made them, do for all but
// OnceValue, and that Install and Schema add what is missing, on many replicas at once.
func ValueInstalled[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewInstalled(t, e, c, txlock.WithSlots(64))
	session, err := f.Admin.Conn(background)
	require.NoError(t, err)
	defer session.Close()
	replicas := func() {
		var group errgroup.Group
		for range 5 {
			group.Go(func() error { return f.Locks.Install(background) })
		}
		require.NoError(t, group.Wait())
	}
	schema := func() {
		for statement := range strings.SplitSeq(strings.TrimSuffix(f.Locks.Schema(), ";\n"), ";\n") {
			database.Exec(t, session, statement)
		}
	}
	for i, install := range []func(){replicas, schema} {
		o, plain := f.Locks.Once(string(rune('a'+i))), f.Locks.Once(string(rune('x'+i)))
		f.AsAdmin(t, "ALTER TABLE "+table+"_once DROP COLUMN answer")
		err := valueError(o, "", 1)
		require.ErrorIs(t, err, txlock.ErrNotInstalled)
		require.ErrorContains(t, err, "run install")
		require.ErrorIs(t, outerError(f.Locks, o), txlock.ErrNotInstalled)
		doneOnce(t, plain)
		install()
		require.ErrorContains(t, valueError(plain, "", 1), "which keep no answer")
		value(t, background, o, "", i, true)
	}
}

// outerError is the error in the work of a Do.
func outerError[Tx any](l *txlock.Locker[Tx], o *txlock.Once[Tx]) error {
	return l.Mutex("outer").Do(background, func(ctx context.Context, _ Tx) error {
		_, _, err := txlock.OnceValue(ctx, o, nil, answers[Tx](1))
		return err
	})
}
