package guarantees

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
)

// CombinedPanics shows that a panic goes on in the goroutine of one caller, and that the others are
// told.
func CombinedPanics[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	for name, end := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		for _, naming := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, naming the lock %v", name, naming), func(t *testing.T) {
				o := newOrders(t, testbed.NewFixture(t, e, c))
				o.Combined = txlock.Combine(func(in []int) *txlock.Mutex[Tx] {
					if naming && in[0] == 1 {
						end()
					}
					return o.lock(in)
				}, func(ctx context.Context, tx Tx, in []int) ([]txlock.Result[int], error) {
					results, err := o.work(ctx, tx, in)
					if in[0] == 1 {
						end()
					}
					return results, err
				})
				all := o.together(t, 1, 2, 3)
				first := testbed.Receive(t, all[0].ended)
				require.True(t, first.exited)
				if name == "panic" {
					require.Equal(t, "boom", first.panicked)
				} else {
					require.Nil(t, first.panicked)
				}
				for _, p := range all[1:] {
					p.fails(t, txlock.ErrPanicked)
				}
				o.Free(t, o.key)
				require.Equal(t, 8, must.Get(o.Do(background, 4))(t))
				require.Equal(t, []int{0, 4}, o.committed(t))
			})
		}
	}
}

// faultyDriver is a driver, or the client library below it, in which something happens before a
// session begins.
type faultyDriver[Tx any] struct {
	dialects.Driver[Tx]
	fault func() error
}

func (d *faultyDriver[Tx]) Begin(ctx context.Context, request dialects.Request) (dialects.Session[Tx],
	dialects.Grant, error,
) {
	if err := d.fault(); err != nil {
		return nil, dialects.Grant{}, err
	}
	return d.Driver.Begin(ctx, request)
}

// panickyTracer panics when it is told of an error.
type panickyTracer struct{}

func (panickyTracer) Asked(ctx context.Context, _ txlock.Call) context.Context { return ctx }
func (panickyTracer) Ended(context.Context, error)                             {}
func (panickyTracer) Answered(_ context.Context, err error) {
	if err != nil {
		panic("boom")
	}
}

// faulty has all orders but 0 locked by a Locker of the driver that it returns, which has no fault
// yet.
func (o *orders[Tx]) faulty(t *testing.T, options ...txlock.Option) *faultyDriver[Tx] {
	driver, pool := o.Connect(t, o.DSNFor(o.Label, "", nil), testbed.PoolSize)
	d := &faultyDriver[Tx]{Driver: driver, fault: func() error { return nil }}
	locks := txlock.New(d, append(options, txlock.WithTable(o.Engine.Table()))...)
	t.Cleanup(func() {
		require.NoError(t, locks.Close())
		pool.Close()
	})
	o.Combined = txlock.Combine(func(in []int) *txlock.Mutex[Tx] {
		if in[0] == 0 {
			return o.lock(in)
		}
		return locks.Mutex(o.key)
	}, o.work)
	return d
}

// CombinedWaitPanics shows that a panic of the client library, or of a Tracer, while a batch waits
// goes on in the goroutine of one caller. When all have left, the log has it.
func CombinedWaitPanics[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	for name, way := range map[string]struct {
		fault    func() error
		panicked any
		tracer   txlock.Tracer
		others   error
	}{
		"panic":               {func() error { panic("boom") }, "boom", panickyTracer{}, txlock.ErrPanicked},
		"Goexit":              {func() error { runtime.Goexit(); return nil }, nil, &story{}, txlock.ErrPanicked},
		"panic of the Tracer": {func() error { return errWork }, "boom", panickyTracer{}, errWork},
	} {
		t.Run(name, func(t *testing.T) {
			o, log := newOrders(t, testbed.NewFixture(t, e, c)), &testbed.Logbook{}
			d := o.faulty(t, log.Option(), txlock.WithTracer(way.tracer))
			sound := d.fault
			d.fault = way.fault
			all := o.together(t, 1, 2, 3)
			first := testbed.Receive(t, all[0].ended)
			require.True(t, first.exited)
			require.Equal(t, way.panicked, first.panicked)
			for _, p := range all[1:] {
				p.fails(t, way.others)
			}
			require.Contains(t, log.One(t, "ERROR", "a batch")["stack"], "combine_panics.go")
			d.fault = sound
			require.Equal(t, 8, must.Get(o.Do(background, 4))(t))

			begins, goOn := make(chan struct{}), make(chan struct{})
			d.fault = func() error {
				close(begins)
				<-goOn
				d.fault = sound
				return way.fault()
			}
			leaves := o.place(t, 5)
			testbed.Receive(t, begins)
			leaves.cancel()
			leaves.left(t)
			late := o.place(t, 6)
			close(goOn)
			late.is(t, 12)
			require.Len(t, log.Records(t), 2)
			require.Equal(t, []int{0, 4, 6}, o.committed(t))
		})
	}
}

// endPanics is a Tracer that panics when it is told of an end.
type endPanics struct{ story }

func (*endPanics) Ended(context.Context, error) { panic("boom") }

// CombinedEndPanics shows that a Tracer which panics when a batch has ended takes nothing from the
// others of the batch: they are told what became of their orders.
func CombinedEndPanics[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	o := newOrders(t, testbed.NewFixture(t, e, c))
	o.faulty(t, txlock.WithTracer(&endPanics{}))
	for _, fails := range []error{errWork, nil} {
		o.during = func(_ context.Context, _ Tx, in []int) error {
			if in[0] == 0 {
				return nil
			}
			return fails
		}
		all := o.together(t, 1, 2, 3)
		require.Equal(t, "boom", testbed.Receive(t, all[0].ended).panicked)
		for i, p := range all[1:] {
			if fails == nil {
				p.is(t, 2*(i+2))
			} else {
				p.fails(t, errWork)
			}
		}
		if fails != nil {
			require.Equal(t, []int{0}, o.committed(t))
			o.AsAdmin(t, "DELETE FROM "+o.table)
		}
	}
	require.Equal(t, []int{0, 1, 2, 3}, o.committed(t))
}
