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
	"github.com/txlock/txlock/internal/test/eventually"
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

// panicking is a call that a Tracer is told of.
type panicking struct {
	call func(ctx context.Context) error
	hold func(t *testing.T) (release func()) // makes further calls wait in the process; nil: they never do
}

func tracerPanics[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	tracer := &faultyTracer{queued: make(chan struct{}, 16)}
	f := testbed.NewSizedFixture(t, e, c, 8, "", txlock.WithTracer(tracer), txlock.WithQueue(1))
	for name, call := range panickingCalls(f, f.Locks) {
		for _, what := range []string{"Asked", "Queued", "Admitted", "Answered", "Ended"} {
			if call.hold == nil && (what == "Queued" || what == "Admitted") {
				continue
			}
			for way, end := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
				t.Run(name+"/"+what+"/"+way, func(t *testing.T) {
					tracer.end = end
					tracerPanicsAt(t, f, tracer, call, what)
				})
			}
		}
	}
}

func tracerPanicsAt[Tx any](t *testing.T, f *testbed.Fixture[Tx], tracer *faultyTracer, call panicking, what string) {
	ctx, cancel := context.WithTimeout(background, 20*time.Second)
	defer cancel()
	release := func() {}
	if call.hold != nil && (what == "Queued" || what == "Admitted") {
		release = call.hold(t)
	}
	for len(tracer.queued) > 0 {
		<-tracer.queued
	}
	tracer.at.Store(&what)
	ended := make(chan bool, 1) // as it should
	go func() {
		returned := false
		defer func() { ended <- recover() == nil && returned }()
		_ = call.call(ctx)
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
	require.NoError(t, call.call(ctx), "a further call")
	f.Transactions(t, 0)
	f.Unused(t)
}

// panickingCalls are calls of each kind, which lock keys of f.
func panickingCalls[Tx any](f *testbed.Fixture[Tx], locks *txlock.Locker[Tx]) map[string]panicking {
	lockBy := func(lock func(context.Context) (*txlock.Lock, error)) func(context.Context) error {
		return func(ctx context.Context) error {
			held, err := lock(ctx)
			if err != nil {
				return err
			}
			return held.Unlock(ctx)
		}
	}
	holdBy := func(m *txlock.Mutex[Tx]) func(t *testing.T) func() {
		return func(t *testing.T) func() {
			held := testbed.Lock(t, m)
			return func() { require.NoError(t, held.Unlock(background)) }
		}
	}
	m, sem := locks.Mutex(f.Key("m")), locks.Semaphore(f.Label, 1)
	combined := txlock.Combine(func([]int) *txlock.Mutex[Tx] { return m },
		func(_ context.Context, _ Tx, in []int) ([]txlock.Result[int], error) {
			return make([]txlock.Result[int], len(in)), nil
		})
	once, election := locks.Once(f.OnceKey("once", "once:")), locks.Election(f.Label, "me")
	lead := func(ctx context.Context) error {
		return election.Lead(ctx, func(context.Context, int64) error { return nil })
	}
	return map[string]panicking{
		"Lock":    {lockBy(m.Lock), holdBy(m)},
		"TryLock": {lockBy(m.TryLock), nil},
		"Do":      {func(ctx context.Context) error { return m.Do(ctx, idle[Tx]) }, holdBy(m)},
		"Combine": {func(ctx context.Context) error { _, err := combined.Do(ctx, 1); return err }, holdBy(m)},
		"Semaphore": {lockBy(sem.Lock), func(t *testing.T) func() {
			release := holdBy(sem)(t)
			next := testbed.LockLater(sem) // at the server
			eventually.Every(t, "the queue's first", testbed.PollEvery, func() bool {
				shown := f.Look(t, f.Label)
				return len(shown) == 1 && len(shown[0].Waiters) == 1
			})
			return func() { release(); require.NoError(t, testbed.Receive(t, next)) }
		}},
		"Once": {func(ctx context.Context) error {
			_, err := once.Do(ctx, idle[Tx])
			return errors.Join(err, once.Forget(background))
		}, func(t *testing.T) func() {
			return holdWhile(t, func(holds func()) {
				_, _ = once.Do(background, func(context.Context, Tx) error {
					holds()
					return errors.New("fails")
				})
			})
		}},
		"Claim": {func(ctx context.Context) error {
			held, err := locks.Claim(f.Label).TryTake(ctx, "me", time.Minute)
			if err != nil {
				return err
			}
			return held.Release(background)
		}, nil},
		"Lead": {lead, func(t *testing.T) func() {
			return holdWhile(t, func(holds func()) {
				_ = election.Lead(background, func(context.Context, int64) error {
					holds()
					return nil
				})
			})
		}},
	}
}

// holdWhile runs a call in the background, which stays in holds until it is released.
func holdWhile(t *testing.T, call func(holds func())) (release func()) {
	begun, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		call(func() {
			close(begun)
			<-goOn
		})
	}()
	testbed.Receive(t, begun)
	return func() {
		close(goOn)
		testbed.Receive(t, done)
	}
}
