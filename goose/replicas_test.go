package txlockgoose_test

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/mysql"
	txlockgoose "github.com/txlock/txlock/goose"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/must"
)

// patient limits what must happen. A CREATE INDEX CONCURRENTLY that waits for a session of txlock
// is through in a minute, when the wait of that session begins again; one that hangs is not in 90
// s.
const patient = 90 * time.Second

// script is a set of migrations whose second one waits at a gate. All replicas have the same one.
type script struct {
	index   string // the third migration
	entered chan context.Context
	gate    chan struct{}
	inside  atomic.Int32
}

func newScript(index string) *script {
	return &script{index: index, entered: make(chan context.Context, 10), gate: make(chan struct{})}
}

const (
	// The counts show whether anything was done twice.
	create = "-- +goose Up\nCREATE TABLE orders (id BIGINT, customer BIGINT);\nINSERT INTO orders VALUES (1, 1);\n"
	insert = "-- +goose Up\nINSERT INTO orders VALUES (2, 2);\n"
	plain  = "-- +goose Up\nCREATE INDEX orders_customer ON orders (customer);\n"
	// goose runs it outside a transaction, on a connection of its own.
	concurrently = "-- +goose NO TRANSACTION\n-- +goose Up\n" +
		"CREATE INDEX CONCURRENTLY orders_customer ON orders (customer);\n"
)

// provider makes goose's Provider for a replica.
func (s *script) provider(t *testing.T, e *engine, r *replica, locker *txlockgoose.Locker) *goose.Provider {
	t.Helper()
	wait := goose.NewGoMigration(2, &goose.GoFunc{RunDB: func(ctx context.Context, _ *sql.DB) error {
		if s.inside.Add(1) > 1 {
			panic("two replicas migrate at the same time")
		}
		defer s.inside.Add(-1)
		s.entered <- ctx
		select {
		case <-s.gate:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}, nil)
	files := fstest.MapFS{
		"00001_create.sql": {Data: []byte(create)},
		"00003_index.sql":  {Data: []byte(s.index)},
		"00004_insert.sql": {Data: []byte(insert)},
	}
	p, err := goose.NewProvider(e.dialect, r.db, files, goose.WithLocker(locker), goose.WithGoMigrations(wait),
		goose.WithDisableGlobalRegistry(true))
	require.NoError(t, err)
	return p
}

const validIndex = "SELECT COUNT(*) FROM pg_index WHERE indisvalid AND indexrelid = 'orders_customer'::regclass"

// outcome is how a run of goose ended.
type outcome struct {
	applied int
	err     error
}

// up lets a replica migrate. The context of the run is one of Context.
func (s *script) up(t *testing.T, e *engine, r *replica) <-chan outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patient)
	ctx, stop := txlockgoose.Context(ctx)
	provider, done := s.provider(t, e, r, r.locker), make(chan outcome, 1)
	go func() {
		defer cancel()
		defer stop()
		results, err := provider.Up(ctx)
		done <- outcome{len(results), err}
	}()
	return done
}

// Three replicas start at once. One migrates, two wait, and all end. Each migration is done once.
func TestReplicas(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) { threeReplicas(t, e, plain) })
}

// CREATE INDEX CONCURRENTLY waits for every older snapshot in the database. Neither the session
// that holds the lock nor those that wait for it stand in its way for long.
func TestConcurrently(t *testing.T) {
	onPostgres(t, func(t *testing.T, e *engine) { threeReplicas(t, e, concurrently) })
}

// The program of the example does what it says. It makes such an index with nobody waiting.
func TestExample(t *testing.T) {
	onPostgres(t, func(t *testing.T, e *engine) {
		ctx, cancel := context.WithTimeout(t.Context(), patient)
		defer cancel()
		dsn := e.newDatabase(t)
		require.NoError(t, migrate(ctx, dsn))
		db := database.Open(t, e.driver, dsn)
		require.Equal(t, 10000, number(t, db, "SELECT COUNT(*) FROM orders"))
		require.Equal(t, 1, number(t, db, validIndex))
		require.NoError(t, migrate(ctx, dsn), "nothing is left to do")
	})
}

func threeReplicas(t *testing.T, e *engine, index string) {
	dsn, s := e.newDatabase(t), newScript(index)
	replicas, runs := make([]*replica, 3), make([]<-chan outcome, 3)
	for i := range replicas {
		replicas[i] = e.start(t, dsn)
		if i == 0 && !e.postgres() {
			// goose looks for its table of versions before it locks. Where CREATE TABLE commits by
			// itself, a replica may find the table without its first row, and fail.
			must.Get(s.provider(t, e, replicas[i], replicas[i].locker).HasPending(t.Context()))(t)
		}
		runs[i] = s.up(t, e, replicas[i])
	}
	receive(t, s.entered)
	e.awaited(t, replicas[0], 2)
	close(s.gate)

	opened := time.Now()
	applied := 0
	for _, run := range runs {
		o := receive(t, run)
		require.NoError(t, o.err)
		require.Contains(t, []int{0, 4}, o.applied)
		applied += o.applied
	}
	took := time.Since(opened)
	t.Logf("all three ended %v after the gate had opened", took.Round(time.Millisecond))
	require.Less(t, took, patient)
	require.Equal(t, 4, applied)
	db := replicas[0].db
	require.Equal(t, 2, number(t, db, "SELECT COUNT(*) FROM orders"))
	require.Equal(t, 4, number(t, db, "SELECT COUNT(*) FROM goose_db_version WHERE version_id > 0"))
	if e.postgres() {
		require.Equal(t, 1, number(t, db, validIndex))
	}
	e.awaited(t, replicas[0], -1)
}

// awaited waits until the lock is held and n sessions wait for it; with -1, until it is free.
// MariaDB's views serve an old picture as long as anybody asks again within 100 ms, and a busy
// MariaDB may not say by whom the lock is held.
func (e *engine) awaited(t *testing.T, r *replica, n int) (holding txlock.Holding) {
	t.Helper()
	e.asking.Lock()
	defer e.asking.Unlock()
	eventually.Every(t, "the lock is held, and awaited by so many", 150*time.Millisecond, func() bool {
		holdings := must.Get(r.look(t.Context()))(t)
		if len(holdings) == 0 || n < 0 {
			return len(holdings) == 0 && n < 0
		}
		holding = holdings[0]
		return holding.Holder != nil && holding.Holder.ID != "" && len(holding.Waiters) == n
	})
	<-time.After(150 * time.Millisecond)
	return holding
}

func receive[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(patient):
		require.Fail(t, "nothing came")
	}
	return value
}

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
