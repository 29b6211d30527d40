//go:build unix

package faults

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
)

// leads starts a process that leads an election, and returns its term.
func leads[Tx any](t *testing.T, f *testbed.Fixture[Tx], name string, lease time.Duration, statement string) (
	leader *testbed.Partner, term int64,
) {
	t.Helper()
	leader = f.StartPartner(t, testbed.Part{
		Plays: "lead", DSN: f.DSNFor(f.Label, "", nil), Key: name, Lease: lease, Statement: statement,
	})
	return leader, termIn(t, leader.Next(t))
}

func termIn(t *testing.T, line string) int64 {
	t.Helper()
	text, ok := strings.CutPrefix(line, "leads ")
	require.True(t, ok, line)
	return must.Get(strconv.ParseInt(text, 10, 64))(t)
}

// successor campaigns, waits at the server, and says with which term it leads, and since when.
func successor[Tx any](t *testing.T, f *testbed.Fixture[Tx], name string) (terms <-chan int64, since <-chan time.Time) {
	t.Helper()
	term, begun := make(chan int64, 1), make(chan time.Time, 1)
	ctx, cancel := context.WithCancel(background)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f.Locks.Election(name, "successor").Lead(ctx, func(ctx context.Context, number int64) error {
			begun <- time.Now()
			term <- number
			<-ctx.Done()
			return nil
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	f.Waiters(t, 1)
	return term, begun
}

func TestLeaderKilled(t *testing.T) {
	testbed.EachOpened(t, leaderKilled[pgx.Tx], leaderKilled[*sql.Tx])
}

// The successor of a leader whose process is killed leads at once, and not after the lease. That
// takes a quarter of a second on a machine that has nothing else to do, which is logged. Here other
// tests run.
func leaderKilled[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	other := testbed.NewFixture(t, e, c)
	name := f.Key("killed")
	leader, term := leads(t, f, name, time.Minute, "")
	found := must.Get(other.Locks.Election(name, "onlooker").Leader(background))(t)
	require.Equal(t, strconv.Itoa(leader.Process.Pid), found.Identity)
	require.Equal(t, term, found.Term)
	terms, since := successor(t, other, name)
	killed := time.Now()
	require.NoError(t, leader.Process.Kill())
	took := testbed.Receive(t, since).Sub(killed)
	t.Logf("the successor led after %v", took)
	require.Less(t, took, 15*time.Second)
	require.Greater(t, testbed.Receive(t, terms), term)
	found = must.Get(other.Locks.Election(name, "onlooker").Leader(background))(t)
	require.Equal(t, "successor", found.Identity)
}

func TestLeaderStopped(t *testing.T) {
	testbed.EachOpened(t, leaderStopped[pgx.Tx], leaderStopped[*sql.Tx])
}

// A leader that is stopped for longer than its lease, and goes on, writes with the term that it
// had: a store that compares terms refuses that.
func leaderStopped[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	other := testbed.NewFixture(t, e, c)
	name := f.Key("stopped")
	store := f.MakeTable(t, "id int primary key, term bigint, late int")
	f.AsAdmin(t, "INSERT INTO "+store+" VALUES (1, 0, 0), (2, 0, 0)")
	write := "UPDATE " + store + " SET term = %v, late = 1 WHERE id = 1 AND term <= %[1]v"
	leader, term := leads(t, f, name, 3*time.Second, fmt.Sprintf(write, "TERM"))
	terms, _ := successor(t, other, name)
	require.NoError(t, leader.Process.Signal(syscall.SIGSTOP))
	next := testbed.Receive(t, terms)
	require.Greater(t, next, term)
	f.AsAdmin(t, fmt.Sprintf("UPDATE %s SET term = %d WHERE id = 1 AND term <= %[2]d", store, next))
	require.NoError(t, leader.Process.Signal(syscall.SIGCONT))
	require.Equal(t, "wrote", leader.Next(t), "it does not know yet")
	require.Equal(t, "lost", leader.Next(t))
	require.Equal(t, 1, f.Total(t, fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE id = 1 AND term = %d AND late = 0", store,
		next)), "the store has refused the late write")
	f.Waiters(t, 1) // it campaigns again
}
