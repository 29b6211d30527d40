//go:build unix

package main_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/dsn"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
)

func TestStatusOfCrowd(t *testing.T) { each(t, statusOfCrowd) }

// Who waits inside a process is counted, in the table and in JSON, and by break.
func statusOfCrowd(t *testing.T, e *engine) {
	e.oneAtATime(t)
	f := installed(t, e)
	c := command([]string{"TXLOCK_DSN=" + f.url, roleVariable + "=crowd"})
	c.Path = os.Args[0]
	crowd := start(t, c)
	require.Equal(t, "ready", crowd.line(t))
	// The first token of a database would take a second begin, at the end of the queue.
	next := f.start(t, "run", "--no-token", "k", "--", "sh", "-c", "echo mine; cat")
	f.waiters(t, 1)
	crowd.send(t, "unlock") // its second caller goes on at the server, and leaves three behind
	require.Equal(t, "mine", next.line(t))
	f.waiters(t, 1)

	k := f.status(t, "k").Locks[0]
	require.Equal(t, 3, k.Behind)
	require.Zero(t, k.Holder.Behind)
	require.Len(t, k.Waiters, 1)
	require.Equal(t, 3, k.Waiters[0].Behind)
	require.Equal(t, crowd.Process.Pid, k.Waiters[0].Process)
	require.Regexp(t, `(?m)^k +held +\S+ +1 \+3 [^\n]*\n  1\. +waits +\S+ +\+3 [^\n]*\n\+  more callers`,
		f.run(t, "status").stdout)
	r := f.run(t, "break", "--yes", "k")
	require.Zero(t, r.code, r.stderr)
	require.Regexp(t, `\n1\. waiting[^\n]*\n3 more wait inside processes\.\n`, r.stdout)
	require.Equal(t, 76, next.wait(t))
	require.NoError(t, crowd.stdin.Close())
	require.Zero(t, crowd.wait(t))
}

// playCrowd locks k, and has four more callers wait for it in the process. At the next line of
// standard input it unlocks, and at its end it ends.
func playCrowd() int {
	server, err := dsn.Parse(os.Getenv("TXLOCK_DSN"), os.Getenv)
	if err != nil {
		return complain(err)
	}
	if server.System == dsn.Postgres {
		driver, err := postgres.Open(background, server.Driver)
		return gather(driver, err)
	}
	driver, err := mysql.Open(background, server.Driver)
	return gather(driver, err)
}

func gather[Tx any](driver dialects.Driver[Tx], err error) int {
	if err != nil {
		return complain(err)
	}
	queued := waits(make(chan struct{}))
	locks := txlock.New(driver, txlock.WithQueue(1), txlock.WithTracer(queued))
	defer locks.Close()
	lock, err := locks.Mutex("k").Lock(background)
	if err != nil {
		return complain(err)
	}
	for range 4 {
		go func() { _, _ = locks.Mutex("k").Lock(background) }()
		<-queued
	}
	fmt.Println("ready")
	input := bufio.NewScanner(os.Stdin)
	if input.Scan() {
		err = lock.Unlock(background)
	}
	for input.Scan() {
	}
	if err != nil {
		return complain(err)
	}
	return 0
}

// waits gets a value for each call that waits in the process.
type waits chan struct{}

// Asked takes no notice.
func (waits) Asked(ctx context.Context, _ txlock.Call) context.Context { return ctx }

// Answered takes no notice.
func (waits) Answered(context.Context, error) {}

// Ended takes no notice.
func (waits) Ended(context.Context, error) {}

// Queued tells of the call.
func (w waits) Queued(context.Context) { w <- struct{}{} }

// Admitted takes no notice.
func (waits) Admitted(context.Context) {}
