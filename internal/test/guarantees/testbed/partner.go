package testbed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
)

// The test binary starts itself again as another process that takes part in a test. This variable
// tells Main so.
const partVariable = "TXLOCK_TEST_PART"

// Partner is such a process. Each line that it prints is an event.
type Partner struct {
	*exec.Cmd
	events *bufio.Scanner
	Exit   func() error // Wait, for all who call it
}

// Part is what a partner does with one key.
type Part struct {
	Plays     string // "hold", "again", "nested", "work", "reads" or "lead"
	DSN, Key  string
	Lease     time.Duration
	Statement string    // of the work; the key of the nested Lock
	Stderr    io.Writer // the test's own, if it is nil
}

// StartPartner starts a process that plays a part.
func (e *Engine) StartPartner(t *testing.T, part Part) *Partner {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), partVariable+"="+part.Plays, "TXLOCK_TEST_DSN="+part.DSN,
		"TXLOCK_TEST_KEY="+part.Key, "TXLOCK_TEST_TABLE="+e.Table(), "TXLOCK_TEST_LEASE="+part.Lease.String(),
		"TXLOCK_TEST_STATEMENT="+part.Statement)
	if c.Stderr = part.Stderr; part.Stderr == nil {
		c.Stderr = os.Stderr
	}
	output, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	exit := sync.OnceValue(c.Wait)
	t.Cleanup(func() { _ = c.Process.Kill(); _ = exit() })
	return &Partner{c, bufio.NewScanner(output), exit}
}

// Next waits for the next event.
func (p *Partner) Next(t *testing.T) string {
	t.Helper()
	scanned := make(chan bool, 1)
	go func() { scanned <- p.events.Scan() }()
	require.True(t, Receive(t, scanned), "the other process ended")
	return p.events.Text()
}

// Ended waits until the process has exited, with success and without another event.
func (p *Partner) Ended(t *testing.T) {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		if p.events.Scan() {
			ended <- errors.New("another event: " + p.events.Text())
			return
		}
		ended <- p.Exit()
	}()
	require.NoError(t, Receive(t, ended))
}

// playPart is the other process.
func playPart(part string) int {
	dsn, key, table := os.Getenv("TXLOCK_TEST_DSN"), os.Getenv("TXLOCK_TEST_KEY"), os.Getenv("TXLOCK_TEST_TABLE")
	lease, err := time.ParseDuration(os.Getenv("TXLOCK_TEST_LEASE"))
	if err == nil && strings.HasPrefix(dsn, "postgres") {
		err = playOn(PgxOpened(), part, dsn, key, txlock.WithTable(table), txlock.WithLease(lease))
	} else if err == nil {
		err = playOn(MySQLOpened(), part, dsn, key, txlock.WithTable(table), txlock.WithLease(lease))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the other process:", err)
		return 1
	}
	return 0
}

func playOn[Tx any](c Client[Tx], part, dsn, key string, options ...txlock.Option) error {
	driver, err := c.open(dsn, 4)
	if err != nil {
		return err
	}
	locks := txlock.New(driver, options...)
	if part == "lead" {
		return lead(c, locks.Election(key, strconv.Itoa(os.Getpid())), dsn)
	}
	m := locks.Mutex(key)
	if part == "work" || part == "reads" {
		err := m.Do(background, func(ctx context.Context, tx Tx) error {
			if part == "reads" {
				fmt.Println("working")
				return c.Exec(ctx, tx, os.Getenv("TXLOCK_TEST_STATEMENT"))
			}
			if err := c.Exec(ctx, tx, os.Getenv("TXLOCK_TEST_STATEMENT")); err != nil {
				return err
			}
			fmt.Println("working")
			<-ctx.Done()
			fmt.Println(outcome(context.Cause(ctx)))
			return nil // a Do that was not lost would commit
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
	if part == "again" { // locks again what it holds as long as that succeeds, and says when the last such call began
		var last time.Time
		for asked := time.Now(); err == nil; asked = time.Now() {
			var nested *txlock.Lock
			if nested, err = m.TryLock(lock.Context()); err == nil {
				if last.IsZero() {
					fmt.Println("again")
				}
				last, err = asked, nested.Unlock(background)
			}
		}
		fmt.Println(last.UnixNano())
	}
	if part == "nested" {
		_, err := locks.Mutex(os.Getenv("TXLOCK_TEST_STATEMENT")).Lock(lock.Context())
		fmt.Println(outcome(err))
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

// lead leads an election, and says so with its term, and why each term ended. When it finds that
// the process was stopped, it runs the statement, with its term in the place of TERM, before it
// looks at its context: the late write of one that does not know.
func lead[Tx any](c Client[Tx], e *txlock.Election[Tx], dsn string) error {
	statement := os.Getenv("TXLOCK_TEST_STATEMENT")
	return e.Lead(background, func(ctx context.Context, term int64) error {
		fmt.Println("leads", term)
		if statement == "" {
			<-ctx.Done()
		} else if err := writeLate(c, dsn, strings.ReplaceAll(statement, "TERM", fmt.Sprint(term))); err != nil {
			return err
		}
		<-ctx.Done()
		fmt.Println(outcome(context.Cause(ctx)))
		return nil
	})
}

// writeLate runs a statement when the process has been stopped.
func writeLate[Tx any](c Client[Tx], dsn, statement string) error {
	for last := time.Now(); time.Since(last) < time.Second; {
		last = time.Now()
		<-time.After(time.Millisecond)
	}
	tx, leave, err := c.Start(dsn, 0)
	if err != nil {
		return err
	}
	defer leave()
	if err := c.Exec(background, tx, statement); err != nil {
		return err
	}
	if err := c.End(background, tx, true); err != nil {
		return err
	}
	fmt.Println("wrote")
	return nil
}
