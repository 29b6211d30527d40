package txlock_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/servers"
)

// The test binary runs itself again as another process that takes part in a test: TestMain sees
// partVariable, which says in what part, and partner is the beginning of such a process. Each line
// that it prints is an event.
const partVariable = "TXLOCK_TEST_PART"

type partner struct {
	*exec.Cmd
	events *bufio.Scanner
	exit   func() error // Wait, for all who call it
}

// startPartner starts a process that plays a part with one key: "hold", "again" or "work".
func (e *engine) startPartner(t *testing.T, part, dsn, key string, lease time.Duration, stderr io.Writer) *partner {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), partVariable+"="+part, "TXLOCK_TEST_DSN="+dsn, "TXLOCK_TEST_KEY="+key,
		"TXLOCK_TEST_TABLE="+e.table(), "TXLOCK_TEST_LEASE="+lease.String())
	c.Stderr = stderr
	output, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	exit := sync.OnceValue(c.Wait)
	t.Cleanup(func() { _ = c.Process.Kill(); _ = exit() })
	return &partner{c, bufio.NewScanner(output), exit}
}

// next waits for the next event.
func (p *partner) next(t *testing.T) string {
	t.Helper()
	scanned := make(chan bool, 1)
	go func() { scanned <- p.events.Scan() }()
	require.True(t, receive(t, scanned), "the other process ended")
	return p.events.Text()
}

// ended waits until the process has exited, with success and without another event.
func (p *partner) ended(t *testing.T) {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		if p.events.Scan() {
			ended <- errors.New("another event: " + p.events.Text())
			return
		}
		ended <- p.exit()
	}()
	require.NoError(t, receive(t, ended))
}

// playPart is the other process.
func playPart(part string) int {
	dsn, key, table := os.Getenv("TXLOCK_TEST_DSN"), os.Getenv("TXLOCK_TEST_KEY"), os.Getenv("TXLOCK_TEST_TABLE")
	lease, err := time.ParseDuration(os.Getenv("TXLOCK_TEST_LEASE"))
	if err == nil && strings.HasPrefix(dsn, "postgres") {
		err = playOn(pgxOpened(), part, dsn, key, txlock.WithTable(table), txlock.WithLease(lease))
	} else if err == nil {
		err = playOn(mysqlOpened(), part, dsn, key, txlock.WithTable(table), txlock.WithLease(lease))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the other process:", err)
		return 1
	}
	return 0
}

func playOn[Tx any](c client[Tx], part, dsn, key string, options ...txlock.Option) error {
	driver, err := c.open(dsn, 4)
	if err != nil {
		return err
	}
	locks := txlock.New(driver, options...)
	m := locks.Mutex(key)
	if part == "work" {
		err := m.Do(background, func(ctx context.Context, tx Tx) error {
			if err := c.exec(ctx, tx, os.Getenv("TXLOCK_TEST_STATEMENT")); err != nil {
				return err
			}
			fmt.Println("working")
			<-ctx.Done()
			fmt.Println(outcome(context.Cause(ctx)))
			return nil // and would commit
		})
		fmt.Println(outcome(err))
		return nil
	}
	fmt.Println("asks")
	lock, err := m.Lock(background)
	if err != nil {
		return err
	}
	fmt.Println("holds")
	if part == "again" { // asks for what it holds, as long as it is told that it does, and says when it last asked so
		last := time.Now()
		for asked := last; err == nil; asked = time.Now() {
			var nested *txlock.Lock
			if nested, err = m.TryLock(lock.Context()); err == nil {
				last, err = asked, nested.Unlock(background)
			}
		}
		fmt.Println(last.UnixNano())
	}
	<-lock.Context().Done()
	fmt.Println(outcome(context.Cause(lock.Context())))
	fmt.Println(outcome(lock.Unlock(background)))
	return locks.Close()
}

func outcome(err error) string {
	if errors.Is(err, txlock.ErrLost) {
		return "lost"
	}
	return fmt.Sprint(err)
}

// eachOpened runs a test with the library's own pools, on every engine.
func eachOpened(t *testing.T, onPgx func(*testing.T, *engine, client[pgx.Tx]),
	onSQL func(*testing.T, *engine, client[*sql.Tx]),
) {
	for _, e := range engines {
		t.Run(e.Name, func(t *testing.T) {
			if e.Kind == servers.MySQL || e.Kind == servers.MariaDB {
				onSQL(t, e, mysqlOpened())
				return
			}
			onPgx(t, e, pgxOpened())
		})
	}
}

func TestHolderKilled(t *testing.T) { eachOpened(t, holderKilled[pgx.Tx], holderKilled[*sql.Tx]) }

// A holder that dies frees the lock at once, and not with its lease, whether it holds a Lock or
// works in a Do.
func holderKilled[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	table := f.makeTable(t, "id int primary key")
	t.Setenv("TXLOCK_TEST_STATEMENT", "INSERT INTO "+table+" VALUES (1)")
	for part, ready := range map[string]string{"hold": "holds", "work": "working"} {
		holder := e.startPartner(t, part, e.dsn(f.label, "", nil), f.key(part), time.Minute, os.Stderr)
		for holder.next(t) != ready {
		}
		granted := f.stranger(t, f.key(part))
		require.NoError(t, holder.Process.Kill())
		receive(t, granted)
	}
	require.Zero(t, f.total(t, "SELECT COUNT(*) FROM "+table))
}

func TestWaiterKilled(t *testing.T) { eachOpened(t, waiterKilled[pgx.Tx], waiterKilled[*sql.Tx]) }

// A waiter that dies does not let the next one in early, nor keep it out for as long as it would
// have held.
func waiterKilled[Tx any](t *testing.T, e *engine, c client[Tx]) {
	// does the next one wait behind the dead one, or does the server know already?
	for _, clean := range []bool{false, true} {
		f := newFixture(t, e, c)
		other := newFixture(t, e, c)
		key := f.key("queue")
		lock, err := f.locks.Mutex(key).Lock(background)
		require.NoError(t, err)
		waiter := e.startPartner(t, "hold", e.dsn(other.label, "", nil), key, time.Minute, os.Stderr)
		require.Equal(t, "asks", waiter.next(t))
		other.waiters(t, 1)
		granted := f.stranger(t, key)
		require.NoError(t, waiter.Process.Kill())
		if clean && e.postgres {
			other.waiters(t, 0)
		}
		require.Error(t, waiter.exit())
		require.Empty(t, granted, "the next one was let in early")
		f.taken(t, key)
		require.NoError(t, lock.Unlock(background))
		receive(t, granted)
	}
}
