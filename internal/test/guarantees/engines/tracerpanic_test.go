package engines

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// faultyTracer panics once, when it is told of what is set.
type faultyTracer struct {
	at     atomic.Pointer[string]
	end    func()
	queued chan struct{} // a call waits in the process
}

func (f *faultyTracer) told(what string) {
	if at := f.at.Load(); at != nil && *at == what && f.at.CompareAndSwap(at, nil) {
		f.end()
	}
}

// Asked implements txlock.Tracer.
func (f *faultyTracer) Asked(ctx context.Context, _ txlock.Call) context.Context {
	f.told("Asked")
	return ctx
}

// Answered implements txlock.Tracer.
func (f *faultyTracer) Answered(context.Context, error) { f.told("Answered") }

// Ended implements txlock.Tracer.
func (f *faultyTracer) Ended(context.Context, error) { f.told("Ended") }

// Queued implements txlock.QueueTracer.
func (f *faultyTracer) Queued(context.Context) {
	f.queued <- struct{}{}
	f.told("Queued")
}

// Admitted implements txlock.QueueTracer.
func (f *faultyTracer) Admitted(context.Context) { f.told("Admitted") }

// A Tracer that panics, or ends the goroutine, leaves no lock, no connection and no place in a
// queue behind. A claim stays taken, and its holder can take it again.
func TestTracerPanics(t *testing.T) {
	testbed.EachOpened(t, tracerPanics[pgx.Tx], tracerPanics[*sql.Tx])
}

func tracerPanics[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	tracer := &faultyTracer{queued: make(chan struct{}, 16)}
	f := testbed.NewSizedFixture(t, e, c, 8, "", txlock.WithTracer(tracer), txlock.WithQueue(1))
	for name, call := range panickingCalls(f) {
		moments := []string{"Asked", "Answered", "Ended"}
		if name == "Lock" || name == "Do" || name == "Combine" { // of a key that others may hold
			moments = append(moments, "Queued", "Admitted")
		}
		for _, what := range moments {
			for way, end := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
				t.Run(name+"/"+what+"/"+way, func(t *testing.T) {
					tracer.end = end
					tracerPanicsAt(t, f, tracer, call, what)
				})
			}
		}
	}
}

func tracerPanicsAt[Tx any](t *testing.T, f *testbed.Fixture[Tx], tracer *faultyTracer,
	call func(context.Context) error, what string,
) {
	ctx, cancel := context.WithTimeout(background, 20*time.Second)
	defer cancel()
	release := func() {}
	if what == "Queued" || what == "Admitted" { // so that the call waits in the process
		held := testbed.Lock(t, f.Locks.Mutex(f.Key("m")))
		release = func() { require.NoError(t, held.Unlock(background)) }
	}
	for len(tracer.queued) > 0 {
		<-tracer.queued
	}
	tracer.at.Store(&what)
	ended := make(chan bool, 1) // as it should
	go func() {
		returned := false
		defer func() { ended <- recover() == nil && returned }()
		_ = call(ctx)
		returned = true
	}()
	if what == "Admitted" {
		testbed.Receive(t, tracer.queued)
		release()
	}
	require.False(t, testbed.Receive(t, ended), "the panic goes on")
	require.Nil(t, tracer.at.Load())
	if what != "Admitted" {
		release()
	}
	require.NoError(t, call(ctx), "a further call")
	f.Transactions(t, 0)
	f.Unused(t)
}

// panickingCalls are calls of each kind, of which the Tracer is told.
func panickingCalls[Tx any](f *testbed.Fixture[Tx]) map[string]func(context.Context) error {
	m := f.Locks.Mutex(f.Key("m"))
	combined := txlock.Combine(func([]int) *txlock.Mutex[Tx] { return m },
		func(_ context.Context, _ Tx, in []int) ([]txlock.Result[int], error) {
			return make([]txlock.Result[int], len(in)), nil
		})
	once := f.Locks.Once(f.OnceKey("once", "once:"))
	return map[string]func(context.Context) error{
		"Lock": func(ctx context.Context) error { return testbed.Cycle(ctx, m) },
		"TryLock": func(ctx context.Context) error {
			held, err := m.TryLock(ctx)
			if err != nil {
				return err
			}
			return held.Unlock(ctx)
		},
		"Do":        func(ctx context.Context) error { return m.Do(ctx, idle[Tx]) },
		"Combine":   func(ctx context.Context) error { _, err := combined.Do(ctx, 1); return err },
		"Semaphore": func(ctx context.Context) error { return testbed.Cycle(ctx, f.Locks.Semaphore(f.Label, 1)) },
		"Once": func(ctx context.Context) error {
			_, err := once.Do(ctx, idle[Tx])
			return errors.Join(err, once.Forget(background))
		},
		"Claim": func(ctx context.Context) error {
			held, err := f.Locks.Claim(f.Label).TryTake(ctx, "me", time.Minute)
			if err != nil {
				return err
			}
			return held.Release(background)
		},
		"Lead": func(ctx context.Context) error {
			lead := func(context.Context, int64) error { return nil }
			return f.Locks.Election(f.Label, "me").Lead(ctx, lead)
		},
	}
}
