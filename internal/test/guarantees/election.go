package guarantees

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/locktable"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
)

// term is one call of the work of a Lead.
type term struct {
	number int64
	ctx    context.Context
	begun  time.Time
	end    chan<- error // what the work returns
}

// candidate is a Lead in the background.
type candidate struct {
	terms chan term
	over  chan error // what Lead returned
	leave context.CancelFunc
}

// candidacy starts a Lead.
func candidacy[Tx any](t *testing.T, e *txlock.Election[Tx]) *candidate {
	t.Helper()
	ctx, cancel := context.WithCancel(background)
	c := &candidate{terms: make(chan term, 100), over: make(chan error, 1), leave: cancel}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.over <- e.Lead(ctx, func(ctx context.Context, number int64) error {
			end := make(chan error, 1)
			c.terms <- term{number, ctx, time.Now(), end}
			select {
			case err := <-end:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return c
}

// OneLeader shows that one leads an election at a time, that terms increase, and that Leader tells
// the truth of it.
func OneLeader[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	fixtures := []*testbed.Fixture[Tx]{testbed.NewFixture(t, e, c), testbed.NewFixture(t, e, c)}
	name := fixtures[0].Key("election")
	var inside atomic.Int64
	var last int64 // guarded by the leadership
	contend(t, 8, 4, func(i int) error {
		me := fmt.Sprint("candidate ", i)
		return fixtures[i%2].Locks.Election(name, me).Lead(background, func(ctx context.Context, term int64) error {
			if now := inside.Add(1); now > 1 {
				return fmt.Errorf("%d lead", now)
			}
			defer inside.Add(-1)
			if term <= last {
				return fmt.Errorf("term %d after %d", term, last)
			}
			last = term
			for _, other := range fixtures {
				leader, err := other.Locks.Election(name, "onlooker").Leader(ctx)
				if err != nil {
					return err
				}
				if leader.Identity != me || leader.Term != term {
					return fmt.Errorf("%s leads with term %d, not %+v", me, term, leader)
				}
			}
			return nil
		})
	})
	require.Positive(t, last)
	_, err := fixtures[0].Locks.Election(name, "onlooker").Leader(background)
	require.ErrorIs(t, err, txlock.ErrNoLeader)
}

// Resigning shows how Lead ends, and that the leader has resigned then.
func Resigning[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	other := testbed.NewFixture(t, e, c)
	type key struct{}
	name := f.Key("resigning")
	me, rival := f.Locks.Election(name, "me"), other.Locks.Election(name, "rival")
	require.ErrorIs(t, testbed.ErrorOf(me.Leader(background)), txlock.ErrNoLeader, "nobody has ever led")
	before := time.Now().Add(-time.Minute)
	leads := func(work func(context.Context, int64) error) (ended context.Context, err error) {
		ctx, cancel := context.WithCancel(context.WithValue(background, key{}, "value"))
		defer cancel()
		err = me.Lead(ctx, func(ctx context.Context, term int64) error {
			ended = ctx
			require.Equal(t, "value", ctx.Value(key{}))
			leader := must.Get(rival.Leader(background))(t)
			require.Equal(t, txlock.Leader{Identity: "me", Term: term, Since: leader.Since}, leader)
			require.WithinRange(t, leader.Since, before, time.Now().Add(time.Minute))
			return work(ctx, term)
		})
		return ended, err
	}
	ended := must.Get(leads(func(context.Context, int64) error { return nil }))(t)
	require.Equal(t, context.Canceled, context.Cause(ended))
	require.ErrorIs(t, testbed.ErrorOf(me.Leader(background)), txlock.ErrNoLeader)
	_, err := leads(func(context.Context, int64) error { return errWork })
	require.Equal(t, errWork, err)
	require.PanicsWithValue(t, "boom", func() {
		_, _ = leads(func(context.Context, int64) error { panic("boom") })
	})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = leads(func(context.Context, int64) error { runtime.Goexit(); return nil })
	}()
	testbed.Receive(t, gone)

	next := candidacy(t, rival)
	leading := testbed.Receive(t, next.terms)
	next.leave()
	require.ErrorIs(t, testbed.Receive(t, next.over), context.Canceled)
	require.Equal(t, context.Canceled, context.Cause(leading.ctx))
	ctx, cancel := context.WithCancel(background)
	require.NoError(t, me.Lead(ctx, func(ctx context.Context, _ int64) error {
		cancel()
		<-ctx.Done()
		return nil
	}), "work has returned nil")
	ctx, cancel = context.WithCancel(background)
	err = me.Lead(ctx, func(ctx context.Context, _ int64) error {
		cancel()
		<-ctx.Done()
		return errWork
	})
	testbed.ErrorIs(t, err, errWork, context.Canceled)

	// A candidate that waits at the server gives up, and the one behind it in the process goes on.
	first := candidacy(t, rival)
	testbed.Receive(t, first.terms)
	waiting, behind := candidacy(t, me), candidacy(t, me)
	f.Waiters(t, 1)
	waiting.leave()
	behind.leave()
	require.ErrorIs(t, testbed.Receive(t, waiting.over), context.Canceled)
	require.ErrorIs(t, testbed.Receive(t, behind.over), context.Canceled)
	f.Transactions(t, 0)
}

// LeadersWork shows that the work of a leader owns nothing: what it does is another owner's.
func LeadersWork[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key")
	held := testbed.Lock(t, f.Locks.Mutex(f.Key("outside")))
	inserted := "INSERT INTO " + table + " VALUES "
	err := f.Locks.Election(f.Key("work"), "me").Lead(held.Context(), func(ctx context.Context, term int64) error {
		_, err := f.Locks.Mutex(f.Key("outside")).TryLock(ctx)
		require.ErrorIs(t, err, txlock.ErrNotAcquired, "it has not the caller's locks")
		require.NoError(t, f.Locks.Mutex(f.Key("inside")).Do(ctx, func(ctx context.Context, tx Tx) error {
			return f.Exec(ctx, tx, inserted+"(1)")
		}))
		require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table), "it is committed before the term ends")
		// Several elections at once, one in the other.
		return f.Locks.Election(f.Key("another"), "me").Lead(ctx, func(ctx context.Context, inner int64) error {
			require.Greater(t, inner, term)
			return f.Locks.Mutex(f.Key("inside")).Do(ctx, func(ctx context.Context, tx Tx) error {
				return f.Exec(ctx, tx, inserted+"(2)")
			})
		})
	})
	require.NoError(t, err)
	require.Equal(t, 2, f.Total(t, "SELECT COUNT(*) FROM "+table))
	testbed.Unlock(t, held)
}

// LostLeader shows that a leader whose session is killed is told before the next can lead, and
// campaigns again. The next one waits for a while, which a busy machine may need all: so three
// leaders at most are killed.
func LostLeader[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	toldFirst := false
	for round := 0; round < 3 && !toldFirst; round++ {
		toldFirst = killLeader(t, e, c)
	}
	require.True(t, toldFirst)
}

// killLeader tells whether the leader that is killed knew before the next one led.
func killLeader[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) (toldFirst bool) {
	t.Helper()
	// no heartbeat is due for minutes: the closed connection must tell
	f := testbed.NewSizedFixture(t, e, c, testbed.PoolSize, "", txlock.WithLease(time.Hour))
	other := testbed.NewFixture(t, e, c)
	name := f.Key("lost")
	me := candidacy(t, f.Locks.Election(name, "me"))
	leading := testbed.Receive(t, me.terms)
	rival := candidacy(t, other.Locks.Election(name, "rival"))
	other.Waiters(t, 1)
	told, killed := endOf(leading.ctx), time.Now()
	f.KillSessions(t)
	known := testbed.Receive(t, told)
	require.ErrorIs(t, context.Cause(leading.ctx), txlock.ErrLost)
	next := testbed.Receive(t, rival.terms)
	require.Greater(t, next.begun.Sub(killed), 200*time.Millisecond, "the time that the last one has to learn of it")
	require.Greater(t, next.number, leading.number)
	f.Waiters(t, 1) // it campaigns again
	require.Equal(t, "rival", must.Get(f.Locks.Election(name, "onlooker").Leader(background))(t).Identity)
	next.end <- nil
	require.NoError(t, testbed.Receive(t, rival.over))
	again := testbed.Receive(t, me.terms)
	require.Greater(t, again.number, next.number)
	again.end <- errWork
	require.Equal(t, errWork, testbed.Receive(t, me.over))
	return known.Before(next.begun)
}

// LateRecord shows that a candidate that was stopped between its grant and the record does no harm:
// the record has a later term by then. And who writes it does not make it seem that somebody leads.
func LateRecord[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	driver, p := c.Connect(t, e.DSNFor(f.Label, "", nil), 4)
	defer p.Close()
	name := f.Key("late")
	me := candidacy(t, f.Locks.Election(name, "me"))
	leading := testbed.Receive(t, me.terms)
	leaders := testbed.TableOf(e, "txlock_slots_leaders")
	found := must.Get(locktable.Find(background, driver, e.Table()))(t)
	sql, hash := found.Kinds.Leaders, testbed.HashOf(name)
	record := " WHERE hash = '" + hash + "' AND part = 'record'"
	require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+leaders+record+" AND identity = 'me'"))
	late := func(query dialects.Query) {
		t.Helper()
		lines := must.Get(driver.Run(background, query))(t)
		require.NotEqual(t, []string{"1"}, lines)
		require.NotContains(t, lines, "lost")
		require.NotContains(t, lines, "resigned")
	}
	lateRecord := func() { late(sql.Write.With(leading.number-1, "late", hash)) }
	lateRecord()
	late(sql.Resign.With(hash, leading.number-1))
	require.Equal(t, "me", must.Get(f.Locks.Election(name, "me").Leader(background))(t).Identity)

	// Who writes the record locks it, and the one before is there until it commits. It has gone.
	leading.end <- nil
	require.NoError(t, testbed.Receive(t, me.over))
	writer := f.Guest(t)
	require.NoError(t, f.Exec(background, writer, "UPDATE "+leaders+" SET term = term + 1, identity = 'x'"+record))
	require.ErrorIs(t, testbed.ErrorOf(f.Locks.Election(name, "me").Leader(background)), txlock.ErrNoLeader)
	require.NoError(t, c.End(background, writer, false))

	lateRecord()
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+leaders+" WHERE identity = 'late'"))
	require.ErrorIs(t, testbed.ErrorOf(f.Locks.Election(name, "me").Leader(background)), txlock.ErrNoLeader)
}

// CandidatesWait shows that candidates of one process wait in it: one session of an election at the
// server, whatever WithQueue says.
func CandidatesWait[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewSizedFixture(t, e, c, 5, "", txlock.WithQueue(4))
	name := f.Key("crowd")
	rival := testbed.NewFixture(t, e, c)
	first := candidacy(t, rival.Locks.Election(name, "rival"))
	testbed.Receive(t, first.terms)
	ctx, cancel := context.WithCancel(background)
	var led atomic.Int64
	var group errgroup.Group
	for range 200 {
		group.Go(func() error {
			err := f.Locks.Election(name, "one of many").Lead(ctx, func(ctx context.Context, _ int64) error {
				led.Add(1)
				if led.Load() < 20 {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			})
			if errors.Is(err, context.Canceled) {
				err = nil
			}
			return err
		})
	}
	f.Waiters(t, 1)
	f.Transactions(t, 1)
	f.Free(t, f.Key("something else"))
	first.leave()
	eventually.Every(t, "twenty of them have led", testbed.PollEvery, func() bool { return led.Load() == 20 })
	f.Transactions(t, 1)
	cancel()
	require.NoError(t, group.Wait())
	require.EqualValues(t, 20, led.Load())
}
