package txlockotel_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/must"
	txlockotel "github.com/txlock/txlock/otel"
)

var errSoldOut = errors.New("sold out")

func nothing(context.Context, *sql.Tx) error { return nil }

// Each way in which a wait fails is counted once. The counter, the histogram and the span agree on
// it.
func TestWaitsThatEnd(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, e *engine) {
		f := newFixture(t, e)
		m := f.locks.Mutex(f.key)
		holder := must.Get(f.other.Mutex(f.key).Lock(background))(t)
		want := map[string]int{}
		ends := func(series string, status codes.Code) {
			t.Helper()
			want[series]++
			require.Equal(t, want, f.sums(t, "txlock.requests"))
			counts, _ := f.times(t, "txlock.wait.duration")
			require.Equal(t, want, counts)
			require.Equal(t, status, f.last(t).Status().Code)
			require.Equal(t, series, inWords(attribute.NewSet(f.last(t).Attributes()...)))
		}

		_, err := m.TryLock(background)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		ends("TryLock missed", codes.Unset)
		require.ErrorIs(t, m.TryDo(background, nothing), txlock.ErrNotAcquired)
		ends("TryDo missed", codes.Unset)

		ctx, cancel := context.WithCancel(background)
		failed := make(chan error, 1)
		go func() { failed <- m.Do(ctx, nothing) }()
		e.waiters(t, 1)
		require.Equal(t, map[string]int{"Do": 1}, f.sums(t, "txlock.waiting"))
		cancel()
		require.ErrorIs(t, <-failed, context.Canceled)
		ends("Do cancelled", codes.Unset)

		_, err = m.Within(time.Millisecond).Lock(background)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		ends("Lock timeout txlock.ErrNotAcquired", codes.Error)
		_, err = f.locks.Mutex().Lock(background)
		require.Error(t, err)
		ends("Lock error *errors.errorString", codes.Error)
		require.ErrorIs(t, f.ownLimit(t), txlock.ErrNotAcquired)
		ends("LockTx timeout txlock.ErrNotAcquired", codes.Error)

		require.Empty(t, f.sums(t, "txlock.waiting"))
		require.Empty(t, f.sums(t, "txlock.held"))
		require.Empty(t, f.sums(t, "txlock.releases"))
		require.NoError(t, holder.Unlock(background))
		f.noKey(t)
	})
}

// ownLimit waits for the key in a transaction with a limit of its own.
func (f *fixture) ownLimit(t *testing.T) error {
	t.Helper()
	tx := must.Get(f.db.Begin())(t)
	defer func() { require.NoError(t, tx.Rollback()) }()
	limit, unlimited := "SET LOCAL lock_timeout = '1ms'", "SELECT 1"
	if !f.postgres {
		limit, unlimited = "SET innodb_lock_wait_timeout = 1", "SET innodb_lock_wait_timeout = 50"
	}
	database.Exec(t, tx, limit)
	defer func() { database.Exec(t, tx, unlimited) }()
	return f.locks.Mutex(f.key).LockTx(background, tx)
}

// Each way in which a granted lock ends is counted once.
func TestHoldsThatEnd(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, e *engine) {
		f := newFixture(t, e)
		m := f.locks.Mutex(f.key)
		want, ended := map[string]int{}, 0
		ends := func(series string, status codes.Code) {
			t.Helper()
			want[series]++
			ended++
			eventually.Every(t, "the end", time.Millisecond, func() bool { return len(f.spans.Ended()) == ended })
			require.Empty(t, f.sums(t, "txlock.held"))
			require.Equal(t, want, f.sums(t, "txlock.releases"))
			counts, _ := f.times(t, "txlock.hold.duration")
			require.Equal(t, want, counts)
			require.Equal(t, status, f.last(t).Status().Code)
			require.Equal(t, series, inWords(attribute.NewSet(f.last(t).Attributes()...)))
		}

		lock := must.Get(m.Lock(background))(t)
		require.Equal(t, map[string]int{"Lock": 1}, f.sums(t, "txlock.held"))
		require.NoError(t, lock.Unlock(background))
		ends("Lock released", codes.Unset)
		require.NoError(t, m.TryDo(background, func(context.Context, *sql.Tx) error {
			require.Equal(t, map[string]int{"TryDo": 1}, f.sums(t, "txlock.held"))
			return nil
		}))
		ends("TryDo released", codes.Unset)

		require.Equal(t, errSoldOut, m.Do(background, func(context.Context, *sql.Tx) error { return errSoldOut }))
		ends("Do error *errors.errorString", codes.Error)
		require.Error(t, m.Do(background, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "SELECT * FROM missing")
			return err
		}))
		if e.postgres {
			ends("Do error 42P01", codes.Error)
			require.Equal(t, "42P01", value(f.last(t), "db.response.status_code"))
		} else {
			ends("Do error *mysql.MySQLError", codes.Error)
		}
		require.Panics(t, func() { _ = m.Do(background, func(context.Context, *sql.Tx) error { panic(f.key) }) })
		ends("Do error txlock.ErrPanicked", codes.Error)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_ = m.TryDo(background, func(context.Context, *sql.Tx) error { runtime.Goexit(); return nil })
		}()
		<-gone
		ends("TryDo error txlock.ErrPanicked", codes.Error)

		ctx, cancel := context.WithCancel(background)
		require.ErrorIs(t, m.Do(ctx, func(context.Context, *sql.Tx) error { cancel(); return nil }), context.Canceled)
		ends("Do cancelled", codes.Unset)
		require.ErrorIs(t, f.hangUp(t, m), context.Canceled)
		ends("Do cancelled", codes.Unset)
		require.Error(t, m.Do(background, func(context.Context, *sql.Tx) error { return context.DeadlineExceeded }))
		ends("Do timeout context.DeadlineExceeded", codes.Error)

		lock = must.Get(m.Lock(background))(t)
		e.killSessions(t)
		<-lock.Context().Done()
		ends("Lock lost txlock.ErrLost", codes.Error)
		require.Equal(t, txlock.ErrLost.Error(), f.last(t).Status().Description)
		require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
		require.Zero(t, f.total(t, "txlock.held"), "Unlock does not count again")
		require.ErrorIs(t, m.Do(background, func(context.Context, *sql.Tx) error { e.killSessions(t); return nil }),
			txlock.ErrLost)
		ends("Do lost txlock.ErrLost", codes.Error)

		acquisitions := 0
		for series, n := range f.sums(t, "txlock.requests") {
			require.True(t, strings.HasSuffix(series, " acquired"), series)
			acquisitions += n
		}
		require.Equal(t, f.total(t, "txlock.releases"), acquisitions)
		f.noKey(t)
	})
}

// hangUp ends the context of a Do while a statement of its work waits at the server.
func (f *fixture) hangUp(t *testing.T, m *txlock.Mutex[*sql.Tx]) error {
	t.Helper()
	database.Exec(t, f.db, "CREATE TABLE stuck AS SELECT 1 AS id")
	defer func() { database.Exec(t, f.db, "DROP TABLE stuck") }()
	row := must.Get(f.db.Begin())(t)
	defer row.Rollback()
	database.Exec(t, row, "SELECT id FROM stuck FOR UPDATE")
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- m.Do(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE stuck SET id = 2")
			return err
		})
	}()
	f.waiters(t, 1)
	cancel()
	return <-done
}

// Who waits in the process is counted until it goes on or gives up, and counts as waiting too.
func TestQueued(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, e *engine) {
		f := newFixture(t, e)
		locks := e.locker(txlock.WithQueue(1),
			txlock.WithTracer(txlockotel.NewTracer(txlockotel.WithMeterProvider(f.meters))))
		defer locks.Close()
		m := locks.Mutex(f.key)
		holder := must.Get(m.Lock(background))(t)
		require.Empty(t, f.sums(t, "txlock.queued"))

		counts := func(want map[string]int) {
			t.Helper()
			eventually.Every(t, fmt.Sprintf("queued: %v", want), time.Millisecond,
				func() bool { return maps.Equal(want, f.sums(t, "txlock.queued")) })
		}
		ctx, cancel := context.WithCancel(background)
		gone, done := make(chan error, 1), make(chan error, 1)
		go func() { _, err := m.Lock(ctx); gone <- err }()
		counts(map[string]int{"Lock": 1})
		go func() { done <- m.Do(background, nothing) }()
		counts(map[string]int{"Lock": 1, "Do": 1})
		require.Equal(t, map[string]int{"Lock": 1, "Do": 1}, f.sums(t, "txlock.waiting"))
		require.Equal(t, "{request}", f.read(t)["txlock.queued"].Unit)
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled)
		counts(map[string]int{"Do": 1})
		require.NoError(t, holder.Unlock(background))
		require.NoError(t, <-done)
		require.Empty(t, f.sums(t, "txlock.queued"))
		require.Empty(t, f.sums(t, "txlock.waiting"))
	})
}

// A waiter's time is at least as long as the server showed it waiting, and at most as long as the
// call took.
func TestTimes(t *testing.T) {
	const least = 50 * time.Millisecond
	onEveryEngine(t, func(t *testing.T, e *engine) {
		f := newFixture(t, e)
		holder := must.Get(f.other.Mutex(f.key).Lock(background))(t)
		granted := make(chan *txlock.Lock)
		before := time.Now()
		go func() {
			lock, _ := f.locks.Mutex(f.key).Lock(background)
			granted <- lock
		}()
		e.waiters(t, 1)
		seen := time.Now()
		require.Equal(t, map[string]int{"Lock": 1}, f.sums(t, "txlock.waiting"))
		require.Empty(t, f.sums(t, "txlock.held"))
		<-time.After(least)
		shown := time.Since(seen)
		freed := time.Now()
		require.NoError(t, holder.Unlock(background))
		lock := <-granted
		require.NotNil(t, lock)
		longest := time.Since(before)
		require.Empty(t, f.sums(t, "txlock.waiting"))
		require.Equal(t, map[string]int{"Lock": 1}, f.sums(t, "txlock.held"))
		held := time.Now()
		<-time.After(least)
		require.NoError(t, lock.Unlock(background))

		_, waits := f.times(t, "txlock.wait.duration")
		_, holds := f.times(t, "txlock.hold.duration")
		wait, hold := waits["Lock acquired"], holds["Lock released"]
		require.GreaterOrEqual(t, wait, shown)
		require.LessOrEqual(t, wait, longest)
		require.GreaterOrEqual(t, hold, least)
		require.LessOrEqual(t, wait+hold, time.Since(before))
		span := f.last(t)
		require.WithinRange(t, span.StartTime(), before, seen)
		require.InDelta(t, (wait + hold).Seconds(), span.EndTime().Sub(span.StartTime()).Seconds(), 1e-6)
		require.WithinRange(t, span.Events()[0].Time, freed, held)
	})
}
