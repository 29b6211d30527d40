package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/leaks"
)

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
