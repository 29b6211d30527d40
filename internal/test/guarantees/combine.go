package guarantees

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// orders are numbers. The work of their Combined writes a row for each in one statement, and its
// result is the double.
type orders[Tx any] struct {
	*testbed.Fixture[Tx]
	key, table string
	*txlock.Combined[Tx, int, int]
	during func(ctx context.Context, tx Tx, in []int) error // before the statement; nil: nothing
	judge  func(in int) error                               // the error of one order's result; nil: none

	mu      sync.Mutex
	named   []int   // the orders that lock was last called for
	batches [][]int // that work was called for
}

func newOrders[Tx any](t *testing.T, f *testbed.Fixture[Tx]) *orders[Tx] {
	o := &orders[Tx]{Fixture: f, key: f.Key("combine"), table: f.MakeTable(t, "id int primary key")}
	o.Combined = txlock.Combine(o.lock, o.work)
	return o
}

func (o *orders[Tx]) lock(in []int) *txlock.Mutex[Tx] {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.named = slices.Clone(in)
	return o.Locks.Mutex(o.key)
}

// asks waits until a batch of these orders asks for its lock.
func (o *orders[Tx]) asks(t *testing.T, in ...int) {
	t.Helper()
	eventually.Every(t, fmt.Sprintf("a batch of %d", in), time.Millisecond, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return slices.Equal(in, o.named)
	})
}

func (o *orders[Tx]) work(ctx context.Context, tx Tx, in []int) ([]txlock.Result[int], error) {
	o.mu.Lock()
	o.batches = append(o.batches, slices.Clone(in))
	o.mu.Unlock()
	if o.during != nil {
		if err := o.during(ctx, tx, in); err != nil {
			return nil, err
		}
	}
	results, rows := make([]txlock.Result[int], len(in)), []string(nil)
	for i, number := range in {
		if results[i].Value = 2 * number; o.judge != nil {
			results[i].Err = o.judge(number)
		}
		if results[i].Err == nil {
			rows = append(rows, fmt.Sprintf("(%d)", number))
		}
	}
	if rows == nil {
		return results, nil
	}
	return results, o.Exec(ctx, tx, "INSERT INTO "+o.table+" VALUES "+strings.Join(rows, ", "))
}

// stopped has the work stop at its beginning. It says for which orders, and goes on with an error
// or nil.
func (o *orders[Tx]) stopped() (begun chan []int, goOn chan error) {
	begun, goOn = make(chan []int), make(chan error)
	o.during = func(_ context.Context, _ Tx, in []int) error {
		begun <- slices.Clone(in)
		return <-goOn
	}
	return begun, goOn
}

// works waits until a batch is worked on.
func (o *orders[Tx]) works(t *testing.T) {
	t.Helper()
	eventually.Every(t, "a batch is worked on", time.Millisecond, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.batches) > 0
	})
}

// worked are the batches since the last call.
func (o *orders[Tx]) worked() (batches [][]int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	batches, o.batches = o.batches, nil
	return batches
}

// committed are the orders whose rows another connection sees.
func (o *orders[Tx]) committed(t *testing.T) []int {
	t.Helper()
	return database.Column[int](t, o.Admin, "SELECT id FROM "+o.table+" ORDER BY id")
}

// placed is a call of Do in the background.
type placed struct {
	cancel context.CancelFunc
	ended  chan outcome
}

type outcome struct {
	value    int
	err      error
	panicked any  // what the call panicked with
	exited   bool // by runtime.Goexit
}

// place calls Do in the background, and returns when the order waits.
func (o *orders[Tx]) place(t *testing.T, in int) *placed {
	t.Helper()
	ctx, cancel := context.WithCancel(background)
	t.Cleanup(cancel)
	watched := &watchedContext{Context: ctx, waits: make(chan struct{})}
	p := &placed{cancel: cancel, ended: make(chan outcome, 1)}
	go func() {
		ended := outcome{exited: true}
		defer func() {
			ended.panicked = recover()
			p.ended <- ended
		}()
		ended.value, ended.err = o.Do(watched, in)
		ended.exited = false
	}()
	testbed.Receive(t, watched.waits)
	return p
}

// watchedContext says when somebody waits for its end, which a call does that is in the queue.
type watchedContext struct {
	context.Context
	once  sync.Once
	waits chan struct{}
}

func (w *watchedContext) Done() <-chan struct{} {
	w.once.Do(func() { close(w.waits) })
	return w.Context.Done()
}

// is checks that the order was done.
func (p *placed) is(t *testing.T, value int) {
	t.Helper()
	require.Equal(t, outcome{value: value}, testbed.Receive(t, p.ended))
}

// fails checks that the order was not done, and returns the error. It matches with, unless that is
// nil.
func (p *placed) fails(t *testing.T, with error) error {
	t.Helper()
	ended := testbed.Receive(t, p.ended)
	if with != nil {
		require.ErrorIs(t, ended.err, with)
	}
	require.Error(t, ended.err)
	require.Zero(t, ended.value)
	return ended.err
}

// left checks that the order has left.
func (p *placed) left(t *testing.T) {
	t.Helper()
	require.ErrorIs(t, p.fails(t, txlock.ErrNotAcquired), context.Canceled)
}

// CombinedOutcomes shows that each caller of a Combined gets the result of its own order, when that
// is committed.
func CombinedOutcomes[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	o := newOrders(t, testbed.NewFixture(t, e, c))
	errOdd := errors.New("odd")
	o.judge = func(in int) error {
		if in%2 == 1 {
			return errOdd
		}
		return nil
	}
	var all sync.WaitGroup
	for caller := range 16 {
		all.Go(func() {
			for i := range 8 {
				number := 8*caller + i
				value, err := o.Do(background, number)
				if value != 2*number || !errors.Is(err, o.judge(number)) {
					t.Errorf("order %d: %d, %v", number, value, err)
				}
				n := 0
				err = o.Admin.QueryRow(fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE id = %d", o.table, number)).Scan(&n)
				if err != nil || n != 1-number%2 {
					t.Errorf("order %d: %d rows, %v", number, n, err)
				}
			}
		})
	}
	all.Wait()
	require.Len(t, o.committed(t), 64)
	o.Free(t, o.key)
	batches := o.worked()
	require.Less(t, len(batches), 128, "some orders were done together")
}

// CombinedBatches shows that a batch is what is queued when it begins, in order and up to a limit.
func CombinedBatches[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	o := newOrders(t, testbed.NewFixture(t, e, c))
	o.Combined = o.AtMost(4)
	begun, goOn := o.stopped()
	all := []*placed{o.place(t, 0)}
	require.Equal(t, []int{0}, testbed.Receive(t, begun), "who comes first begins at once")
	for number := 1; number <= 10; number++ {
		all = append(all, o.place(t, number))
	}
	for _, batch := range [][]int{{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10}} {
		goOn <- nil
		require.Equal(t, batch, testbed.Receive(t, begun))
	}
	late := o.place(t, 11)
	goOn <- nil
	for number, p := range all {
		p.is(t, 2*number)
	}
	require.Equal(t, []int{11}, testbed.Receive(t, begun))
	goOn <- nil
	late.is(t, 22)
	require.Len(t, o.committed(t), 12)
}

// CombinedContext shows that the work of a batch has nothing of its callers' contexts, and owns the
// lock.
func CombinedContext[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	o := newOrders(t, testbed.NewFixture(t, e, c))
	type key struct{}
	o.during = func(ctx context.Context, tx Tx, _ []int) error {
		require.Nil(t, ctx.Value(key{}))
		_, limited := ctx.Deadline()
		require.False(t, limited)
		o.Taken(t, o.key)
		return o.Locks.Mutex(o.key).Do(ctx, idle[Tx])
	}
	ctx, cancel := context.WithTimeout(context.WithValue(background, key{}, "the caller's"), time.Minute)
	defer cancel()
	value, err := o.Do(ctx, 1)
	require.NoError(t, err)
	require.Equal(t, 2, value)
	require.Equal(t, []int{1}, o.committed(t))
}
