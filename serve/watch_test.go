package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/leaks"
)

// slow is a server that takes its time.
type slow struct {
	Locks
	takes atomic.Int64 // a time.Duration
}

func (s *slow) Inspect(ctx context.Context, keys ...string) ([]txlock.Holding, error) {
	select {
	case <-time.After(time.Duration(s.takes.Load())):
		return s.Locks.Inspect(ctx, keys...)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// counting notes how often the server is asked, and by how many calls at once.
type counting struct {
	Locks
	mu                   sync.Mutex
	looks, running, most int
}

func (c *counting) Inspect(ctx context.Context, keys ...string) ([]txlock.Holding, error) {
	c.mu.Lock()
	c.looks++
	c.running++
	c.most = max(c.most, c.running)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.running--
		c.mu.Unlock()
	}()
	return c.Locks.Inspect(ctx, keys...)
}

// The rate of the questions does not depend on how many look, and nobody asks while nobody looks.
func TestOneStream(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		takes time.Duration
		most  int // looks in a minute
	}{{time.Millisecond, 31}, {3 * time.Second, 11}} {
		synctest.Test(t, func(t *testing.T) {
			busy := &slow{Locks: &still{}}
			busy.takes.Store(int64(c.takes))
			locks := &counting{Locks: busy}
			w := &watch{locks: locks, every: defaultEvery, limit: defaultLimit}
			ctx, cancel := context.WithTimeout(background, time.Minute)
			defer cancel()
			var viewers sync.WaitGroup
			for i := range 200 {
				viewers.Go(func() {
					for ctx.Err() == nil {
						_, _ = w.newest(ctx)
						time.Sleep(time.Duration(100+i) * time.Millisecond)
					}
				})
			}
			viewers.Wait()
			synctest.Wait() // for the last look
			require.Equal(t, 1, locks.most)
			require.LessOrEqual(t, locks.looks, c.most)
			require.GreaterOrEqual(t, locks.looks, c.most-3)
			asked := locks.looks
			time.Sleep(time.Hour)
			synctest.Wait()
			require.Equal(t, asked, locks.looks)
		})
	}
}

// While the server does not answer, the page says since when its picture is old.
func TestTrouble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks := &still{holdings: []txlock.Holding{held("sku:42", "1")}}
		silent := &slow{Locks: locks}
		w := &watch{locks: silent, every: defaultEvery, limit: defaultLimit}
		s, err := w.newest(background)
		require.NoError(t, err)
		require.Empty(t, s.trouble())
		at := s.at
		time.Sleep(time.Minute)

		silent.takes.Store(int64(time.Hour))
		begun := time.Now()
		s, _ = w.newest(background)
		require.Less(t, time.Since(begun), defaultLimit)
		require.Equal(t, "This picture is old: the server has not answered since "+clock(at)+". Still waiting for it.",
			s.trouble())
		left, leave := context.WithCancel(background)
		leave()
		_, err = w.newest(left)
		require.ErrorIs(t, err, context.Canceled)
		time.Sleep(defaultLimit)
		s, _ = w.newest(background)
		require.Contains(t, s.trouble(), "since "+clock(at)+". Trying again. It said: no answer within 10s")
		silent.takes.Store(0)
		time.Sleep(time.Minute)

		locks.show(nil, errDown)
		s, _ = w.newest(background)
		require.Equal(t, "This picture is old: the server has not answered since "+clock(at)+
			". Trying again. It said: the server is down", s.trouble())
		require.Len(t, s.holdings, 1)
		time.Sleep(time.Minute)

		locks.show([]txlock.Holding{held("sku:43", "1")}, nil)
		s, _ = w.newest(background)
		require.Empty(t, s.trouble())
		require.Equal(t, "sku:43", s.holdings[0].Key)
	})
}

// The tests of the command, and those in internal/browser, have the page look at real servers.

var background = context.Background()

func TestMain(m *testing.M) {
	code := m.Run()
	if err := leaks.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// still is a picture that does not change, for what no server can be brought to show.
type still struct {
	mu       sync.Mutex
	holdings []txlock.Holding
	err      error
	breaking error
	ended    []string // sessions
	// transaction of the last one
	transaction string
}

func (s *still) Inspect(context.Context, ...string) ([]txlock.Holding, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holdings, s.err
}

func (s *still) Break(_ context.Context, h txlock.Holding) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.breaking != nil {
		return s.breaking
	}
	s.ended, s.transaction = append(s.ended, h.Holder.ID), h.Holder.Transaction
	return nil
}

func (s *still) show(holdings []txlock.Holding, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holdings, s.err = holdings, err
}

// held is a lock on a key, with the sessions that hold it and wait for it.
func held(key string, holder string, waiters ...string) txlock.Holding {
	h := txlock.Holding{Table: "txlock_slots", Row: fmt.Sprint(len(key)), Key: key}
	session := func(id string, since time.Duration) txlock.Session {
		return txlock.Session{
			ID: id, Key: key, Application: "shop", Host: "10.0.0.7", Process: 99, User: "app",
			Since: time.Now().Add(-since), For: since,
		}
	}
	if holder != "" {
		s := session(holder, time.Minute)
		h.Holder = &s
	}
	for i, id := range waiters {
		h.Waiters = append(h.Waiters, session(id, time.Duration(len(waiters)-i)*time.Second))
	}
	return h
}

var errDown = errors.New("the server is down")

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	eventually.Every(t, what, 20*time.Millisecond, is)
}
