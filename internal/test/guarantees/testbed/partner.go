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
	Plays     string // "hold", "again", "nested", "work", "reads", "crowd", "lead" or "candidates"
	DSN, Key  string
	Lease     time.Duration
	Statement string    // of the work; how many candidates; the key of the nested Lock
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

// Scan waits for the next event, as long as it takes, and tells whether there was one.
func (p *Partner) Scan() bool { return p.events.Scan() }

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
	switch part {
	case "crowd":
		return crowd(c, txlock.New(driver, append(options, txlock.WithQueue(2))...).Mutex(key))
	}
	locks := txlock.New(driver, options...)
	election := locks.Election(key, strconv.Itoa(os.Getpid()))
	switch part {
	case "lead":
		return lead(c, election, dsn)
	case "candidates":
		return candidates(election)
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
		last := time.Now()
		for asked := last; err == nil; asked = time.Now() {
			var nested *txlock.Lock
			if nested, err = m.TryLock(lock.Context()); err == nil {
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
