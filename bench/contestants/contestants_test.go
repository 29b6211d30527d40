package contestants_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/bench/contest"
	_ "github.com/txlock/txlock/bench/contestants"
	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/database"
	"github.com/txlock/txlock/internal/test/must"
)

const (
	callers = 6
	// lease is long enough that a free key is locked within half of it, even on a machine that
	// stalls for a while.
	lease = 15 * time.Second
	// soon is how long a call may take to return after its context has ended. Libraries look every
	// 5 s whether a key is free, so to return only then is too late.
	soon    = 3 * time.Second
	patient = 90 * time.Second // limit for all tests of one contestant
)

// table is a test of one contestant, with two clients.
type table struct {
	contest.Contestant
	id      int
	ctx     context.Context // ends when the test's time is over
	clients [2]contest.Client
	value   atomic.Int64 // the counter under the lock if there is no transaction for it
	books   *database.Database
}

func TestContestants(t *testing.T) {
	for id, c := range contest.All() {
		works := c.In(contest.Times | contest.Crowd)
		if !works && (!c.In(contest.Turns) || c.ByHand == "") {
			continue // only sells, or claims, or is a twin
		}
		t.Run(c.Name, func(t *testing.T) {
			env := contest.Environment{Address: bed.Address(c.Server), Lease: lease, Contenders: callers}
			if c.Prepare != nil {
				require.NoError(t, c.Prepare(t.Context(), env))
			}
			if works {
				t.Parallel() // not before Prepare: some contestants share a table
			}
			ctx, cancel := context.WithTimeout(t.Context(), patient)
			defer cancel()
			subject := &table{Contestant: c, id: id, ctx: ctx}
			if c.Server.SQL() {
				books := must.Get(database.Open(t.Context(), c.Server, env.Address, 1))(t)
				defer books.Close()
				subject.books = books
			}
			for i := range subject.clients {
				client := must.Get(c.Open(t.Context(), env))(t)
				defer func() { assert.NoError(t, client.Close()) }()
				subject.clients[i] = client
			}
			if !works {
				t.Run("counts", subject.counts)
				return
			}
			t.Run("excludes", subject.excludes)
			t.Run("returns errors", subject.returnsErrors)
			t.Run("gives up", func(t *testing.T) { subject.turnsAway(t, "wait") })
			t.Run("locks several", func(t *testing.T) { subject.turnsAway(t, "a", "b") })
		})
	}
}

// keyOf is a key that no other contestant locks: some contestants share their locks.
func keyOf(id int, name string) string { return fmt.Sprintf("%03d %s", id, name) }

// hold reports an error if the lock is not granted.
func (s *table) hold(t *testing.T, client int, names []string, work contest.Work) {
	t.Helper()
	var keys []string
	for _, name := range names {
		keys = append(keys, keyOf(s.id, name))
	}
	assert.NoError(t, s.clients[client].Hold(s.ctx, keys, work), keys)
}

// excludes increments a counter under one key. Half of the callers lock a second key as well.
func (s *table) excludes(t *testing.T) {
	const rounds = 5
	var inside atomic.Int32
	var read int64
	var group sync.WaitGroup
	for caller := range callers {
		keys := []string{"both"}
		if caller%3 == 0 {
			keys = []string{"a", "both"}
		}
		group.Go(func() {
			for range rounds {
				s.hold(t, caller%2, keys, func(ctx context.Context, tx contest.Tx) error {
					assert.EqualValues(t, 1, inside.Add(1), "who are inside")
					defer inside.Add(-1)
					_, err := s.add(ctx, tx)
					return err
				})
			}
		})
	}
	group.Wait()
	s.hold(t, 0, []string{"both"}, func(ctx context.Context, tx contest.Tx) (err error) {
		read, err = s.add(ctx, tx)
		return err
	})
	require.EqualValues(t, callers*rounds, read, "increments that are there")
}

// add reads and writes. In between it gives others time to do the same.
func (s *table) add(ctx context.Context, tx contest.Tx) (read int64, err error) {
	if tx == nil {
		read = s.value.Load()
	} else if read, err = s.books.Number(ctx, tx, "SELECT value FROM bench_test WHERE id = ?", s.id); err != nil {
		return 0, err
	}
	for range 1000 { // lets others run: one that the lock wrongly admits reads the same value
		runtime.Gosched()
	}
	if tx == nil {
		s.value.Store(read + 1)
		return read, nil
	}
	_, err = s.books.Exec(ctx, tx, "UPDATE bench_test SET value = ? WHERE id = ?", read+1, s.id)
	return read, err
}

func (s *table) returnsErrors(t *testing.T) {
	refused := errors.New("refused")
	for client := range s.clients {
		ctx, end := context.WithCancel(s.ctx)
		err := s.clients[client].Hold(ctx, []string{keyOf(s.id, "error")}, func(context.Context, contest.Tx) error {
			if client == 1 {
				end() // the lock must be unlocked all the same
			}
			return refused
		})
		end()
		require.ErrorIs(t, err, refused)
		s.isFree(t, "error")
	}
}

// isFree checks that both clients get the keys, one after the other, sooner than the lease of a
// forgotten lock would end.
func (s *table) isFree(t *testing.T, keys ...string) {
	t.Helper()
	for client := range s.clients {
		start := time.Now()
		s.hold(t, client, keys, func(context.Context, contest.Tx) error { return nil })
		require.Less(t, time.Since(start), lease/2, keys)
	}
}

// turnsAway lets callers wait for held keys until their contexts end.
func (s *table) turnsAway(t *testing.T, keys ...string) {
	s.hold(t, 0, keys, func(ctx context.Context, _ contest.Tx) error {
		var group sync.WaitGroup
		for client := range s.clients {
			for _, key := range keys {
				group.Go(func() { s.wait(t, client, key) })
			}
		}
		group.Wait()
		return context.Cause(ctx)
	})
	for _, key := range slices.Backward(keys) {
		s.isFree(t, key)
	}
	s.isFree(t, keys...)
}

func (s *table) wait(t *testing.T, client int, key string) {
	ctx, cancel := context.WithTimeout(s.ctx, 400*time.Millisecond)
	defer cancel()
	err := s.clients[client].Hold(ctx, []string{keyOf(s.id, key)}, func(context.Context, contest.Tx) error {
		t.Errorf("%q was locked twice", key)
		return nil
	})
	ended, _ := ctx.Deadline()
	late := time.Since(ended)
	assert.Error(t, err, key)
	assert.True(t, 0 <= late && late <= soon, "a wait for %q ended %v after its context", key, late)
}

// counts checks that each call has done its statement: an Exec has that instead of work.
func (s *table) counts(t *testing.T) {
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() { s.hold(t, caller%2, []string{"a"}, nil) })
	}
	group.Wait()
	n := must.Get(s.books.Number(s.ctx, nil, "SELECT n FROM bench_counter"))(t)
	require.EqualValues(t, callers, n, "calls that have counted")
}

// A twin sends in as many round trips as the client of the library does.
func TestTwins(t *testing.T) {
	named := make(map[string]contest.Contestant)
	for _, c := range contest.All() {
		named[c.Name] = c
	}
	trips := func(t *testing.T, c contest.Contestant) float64 {
		require.NoError(t, c.Prepare(t.Context(), contest.Environment{Address: bed.Address(c.Server), Contenders: 2}))
		proxy, err := bed.Proxied(c.Server)
		require.NoError(t, err)
		defer proxy.Close()
		env := contest.Environment{Address: proxy.Address, Lease: lease, Contenders: 1}
		count, err := crew.RoundTrips(t.Context(), c, env, proxy.Bursts)
		require.NoError(t, err)
		return count
	}
	for _, c := range named {
		if c.ByHand != "" {
			t.Run(c.Name, func(t *testing.T) { require.Equal(t, trips(t, c), trips(t, named[c.ByHand])) })
		}
	}
}
