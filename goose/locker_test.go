package txlockgoose_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/mysql"
	txlockgoose "github.com/txlock/txlock/goose"
	"github.com/txlock/txlock/internal/test/database"
)

// A wait ends with the context of the run, or with Within. Nothing is held then, and the same
// Locker can lock later.
func TestWait(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) {
		dsn, s := e.newDatabase(t), newScript(plain)
		holder, waiter := e.start(t, dsn), e.start(t, dsn)
		run := s.up(t, e, holder)
		receive(t, s.entered)

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		provider := s.provider(t, e, waiter, waiter.locker)
		go func() {
			_, err := provider.Up(ctx)
			done <- err
		}()
		e.awaited(t, holder, 1)
		cancel()
		err := receive(t, done)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		require.ErrorIs(t, err, context.Canceled)
		e.awaited(t, holder, 0)

		_, err = s.provider(t, e, waiter, waiter.mutex(300*time.Millisecond)).Up(t.Context())
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		close(s.gate)
		require.Equal(t, outcome{applied: 4}, receive(t, run))
		require.Equal(t, outcome{}, receive(t, s.up(t, e, waiter)))
		e.awaited(t, holder, -1)
	})
}

// A run whose lock is lost is cancelled: the migration in progress is told, the next one does not
// begin, and the error says what happened. The same replica can then migrate again.
func TestLost(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) {
		dsn, s := e.newDatabase(t), newScript(plain)
		r, other := e.start(t, dsn), e.start(t, dsn)
		run := s.up(t, e, r)
		running := receive(t, s.entered)
		require.NoError(t, other.end(t.Context(), e.awaited(t, other, 0)))
		receive(t, running.Done())
		require.ErrorIs(t, context.Cause(running), txlock.ErrLost)
		require.ErrorIs(t, receive(t, run).err, txlock.ErrLost)
		require.Equal(t, 1, number(t, other.db, "SELECT COUNT(*) FROM orders"), "migration 4 has not run")

		close(s.gate)
		require.Equal(t, outcome{applied: 3}, receive(t, s.up(t, e, r)))
	})
}

// Without Context, goose does not hear of the loss. The error of the run still tells it.
func TestLostUnheard(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) {
		dsn, s := e.newDatabase(t), newScript(plain)
		r, other := e.start(t, dsn), e.start(t, dsn)
		provider, done := s.provider(t, e, r, r.locker), make(chan error, 1)
		go func() {
			_, err := provider.Up(t.Context())
			done <- err
		}()
		running := receive(t, s.entered)
		require.NoError(t, other.end(t.Context(), e.awaited(t, other, 0)))
		e.awaited(t, other, -1)
		require.NoError(t, running.Err())
		close(s.gate)
		require.ErrorIs(t, receive(t, done), txlock.ErrLost)
		require.Equal(t, 2, number(t, other.db, "SELECT COUNT(*) FROM orders"), "all have run")
	})
}

// Unlock works when its context has ended. A second call, and one without a Lock, is ErrNotHeld and
// releases nothing of anybody's. The Locker can be used again.
func TestUnlock(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) {
		dsn := e.newDatabase(t)
		r, other := e.start(t, dsn), e.start(t, dsn)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, r.locker.Unlock(ended, r.db), txlock.ErrNotHeld)
		for range 2 {
			run, stop := txlockgoose.Context(t.Context())
			defer stop()
			run, cancel := context.WithTimeout(run, patient)
			defer cancel()
			require.NoError(t, r.locker.Lock(run, r.db))
			require.NoError(t, r.locker.Unlock(ended, r.db))
			require.NoError(t, run.Err(), "only a loss ends it")
			require.NoError(t, other.locker.Lock(t.Context(), other.db))
			require.ErrorIs(t, r.locker.Unlock(ended, r.db), txlock.ErrNotHeld)
			e.awaited(t, r, 0)
			require.NoError(t, other.locker.Unlock(t.Context(), other.db))
		}
	})
}

// Providers that share a Locker take turns, also when the lock of the first was lost: its Unlock
// must not release the lock of the second.
func TestTurns(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) {
		dsn := e.newDatabase(t)
		r, other := e.start(t, dsn), e.start(t, dsn)
		run, stop := txlockgoose.Context(t.Context())
		defer stop()
		require.NoError(t, r.locker.Lock(run, r.db))
		require.NoError(t, other.end(t.Context(), e.awaited(t, other, 0)))
		receive(t, run.Done())

		brief, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		err := r.locker.Lock(brief, r.db)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		second := make(chan error, 1)
		go func() { second <- r.locker.Lock(t.Context(), r.db) }()
		require.ErrorIs(t, r.locker.Unlock(t.Context(), r.db), txlock.ErrLost)
		require.NoError(t, receive(t, second))
		e.awaited(t, other, 0)
		require.NoError(t, r.locker.Unlock(t.Context(), r.db))
	})
}

func TestNilMutex(t *testing.T) {
	var none *txlock.Mutex[pgx.Tx]
	locker := txlockgoose.New(none)
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	for range 2 { // the first leaves nothing behind
		require.ErrorContains(t, locker.Lock(ctx, nil), "nil mutex")
	}
	require.ErrorIs(t, locker.Unlock(t.Context(), nil), txlock.ErrNotHeld)
}

// panics is a Tracer that panics when it is told of a call.
type panics struct{ txlock.Tracer }

func (panics) Asked(context.Context, txlock.Call) context.Context { panic("boom") }

// A panic in Lock keeps no turn: the next call panics as well, and does not wait for it.
func TestPanicInLock(t *testing.T) {
	db := database.Open(t, "mysql", "root@tcp(127.0.0.1:1)/nowhere")
	locker := txlockgoose.New(txlock.New(mysql.New(db), txlock.WithTracer(panics{})).Mutex("migrations"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for range 2 {
		require.PanicsWithValue(t, "boom", func() { _ = locker.Lock(ctx, nil) })
	}
}
