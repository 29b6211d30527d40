package serve

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/leaks"
	"github.com/txlock/txlock/internal/test/servers"
)

var (
	background = context.Background()
	postgres18 *servers.Server
	mariadb    *servers.Server
)

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(background, os.Interrupt, syscall.SIGTERM)
	code := servers.RunOn(ctx, []servers.Kind{servers.Postgres18, servers.MariaDB},
		func(server *servers.Server) (io.Closer, error) {
			if server.Kind == servers.MariaDB {
				mariadb = server
			} else {
				postgres18 = server
			}
			return nil, nil
		}, m.Run)
	stop()
	if code == 0 {
		if err := leaks.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// table is a lock table of this test alone.
func table(t *testing.T) string {
	return strings.ToLower(t.Name()) + fmt.Sprint(os.Getpid())
}

func onPostgres(t *testing.T) *txlock.Locker[pgx.Tx] {
	t.Helper()
	driver, err := postgres.Open(background, postgres18.DSN)
	require.NoError(t, err)
	locks := txlock.New(driver, txlock.WithTable(table(t)))
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	require.NoError(t, locks.Install(background))
	return locks
}

func onMariaDB(t *testing.T) *txlock.Locker[*sql.Tx] {
	t.Helper()
	driver, err := mysql.Open(background, mariadb.DSN)
	require.NoError(t, err)
	locks := txlock.New(driver, txlock.WithTable(table(t)))
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	require.NoError(t, locks.Install(background))
	return locks
}

// counting notes when the server is asked, and that it is asked by one call at a time.
type counting struct {
	Locks
	mu      sync.Mutex
	begun   []time.Time
	running int
	most    int
}

func (c *counting) Inspect(ctx context.Context, keys ...string) ([]txlock.Holding, error) {
	c.mu.Lock()
	c.begun = append(c.begun, time.Now())
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

func (c *counting) looks() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.begun)
}

func (c *counting) atOnce() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most
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
