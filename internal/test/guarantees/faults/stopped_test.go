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

func TestHolderStopped(t *testing.T) { eachOpened(t, holderStopped[pgx.Tx], holderStopped[*sql.Tx]) }

// A holder that is stopped for longer than its lease loses the lock. When it goes on it is told so,
// and cannot commit.
func holderStopped[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key")
	insert := "INSERT INTO " + table + " VALUES (1)"
	holders, grants := map[string]*testbed.Partner{}, map[string]<-chan time.Time{}
	for part, ready := range map[string]string{"hold": "holds", "work": "working"} {
		holders[part], grants[part] = stoppedPartner(t, f, part, ready, insert)
	}
	for part, holder := range holders {
		testbed.Receive(t, grants[part])
		require.NoError(t, holder.Process.Signal(syscall.SIGCONT))
		require.Equal(t, "lost", holder.Next(t), "its context")
		require.Equal(t, "lost", holder.Next(t), "Unlock, or Do")
		holder.Ended(t)
	}
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
}

// stoppedPartner starts a process, and stops it when it holds the key and a stranger waits for
// that. It says when the stranger got the key. The work is silent from the start, so its lease must
// last until the stop.
func stoppedPartner[Tx any](t *testing.T, f *testbed.Fixture[Tx], part, ready, statement string) (
	*testbed.Partner, <-chan time.Time,
) {
	t.Helper()
	stranger := testbed.NewSizedFixture(t, f.Engine, f.Client, 2, "")
	stranger.Free(t, f.Key(part)) // connects and reads the number of slots before the lease runs
	holder := f.StartPartner(t, testbed.Part{
		Plays: part, DSN: f.DSNFor(f.Label, "", nil), Key: f.Key(part), Lease: 3 * time.Second, Statement: statement,
	})
	for holder.Next(t) != ready {
	}
	granted := stranger.Waits(t, f.Key(part))
	require.NoError(t, holder.Process.Signal(syscall.SIGSTOP))
	require.Empty(t, granted, "its lease was over before the stop")
	return holder, granted
}

func TestStoppedWhileTheServerIsActive(t *testing.T) {
	eachOpened(t, stoppedWhileActive[pgx.Tx], stoppedWhileActive[*sql.Tx])
}

// A holder that is stopped while its session is not idle loses its lock too: where it reads a large
// result after its lease, and where a nested call waits when that wait has lasted for some leases.
func stoppedWhileActive[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	taken := testbed.Lock(t, f.Locks.Mutex(f.Key("taken")))
	rows := "SELECT repeat('x', 1000) FROM " + e.Table() + " a CROSS JOIN " + e.Table() + " b"
	holders, grants := map[string]*testbed.Partner{}, map[string]<-chan time.Time{}
	for part, begin := range map[string]struct{ ready, statement string }{
		"reads": {"working", rows}, "nested": {"holds", f.Key("taken")},
	} {
		stranger, other := testbed.NewSizedFixture(t, e, c, 2, ""), testbed.NewSizedFixture(t, e, c, 2, "")
		stranger.Free(t, f.Key(part)) // reads the number of slots
		holder := other.StartPartner(t, testbed.Part{
			Plays: part, DSN: other.DSNFor(other.Label, "", nil), Key: f.Key(part), Lease: 3 * time.Second,
			Statement: begin.statement,
		})
		for holder.Next(t) != begin.ready {
		}
		if part == "nested" {
			other.Waiters(t, 1)
		}
		holders[part], grants[part] = holder, stranger.Waits(t, f.Key(part))
		require.NoError(t, holder.Process.Signal(syscall.SIGSTOP))
	}
	for part, lines := range map[string]int{"reads": 1, "nested": 3} {
		select {
		case <-grants[part]:
		case <-time.After(time.Minute):
			require.Fail(t, "it keeps its lock", part)
		}
		require.NoError(t, holders[part].Process.Signal(syscall.SIGCONT))
		for range lines {
			require.Equal(t, "lost", holders[part].Next(t), part)
		}
	}
	testbed.Unlock(t, taken)
}

func TestStoppedHolderAsksAgain(t *testing.T) {
	eachOpened(t, stoppedHolderAsksAgain[pgx.Tx], stoppedHolderAsksAgain[*sql.Tx])
}

// A stopped holder that goes on, and locks again what it held, is not told that it holds it.
func stoppedHolderAsksAgain[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	holder, granted := stoppedPartner(t, f, "again", "again", "")
	testbed.Receive(t, granted)
	continued := time.Now()
	require.NoError(t, holder.Process.Signal(syscall.SIGCONT))
	last, err := strconv.ParseInt(holder.Next(t), 10, 64)
	require.NoError(t, err)
	require.Less(t, last, continued.UnixNano())
	require.Equal(t, "lost", holder.Next(t), "its context")
	require.Equal(t, "lost", holder.Next(t), "Unlock")
	holder.Ended(t)
}

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

func TestLeaderKilled(t *testing.T) { eachOpened(t, leaderKilled[pgx.Tx], leaderKilled[*sql.Tx]) }

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

func TestLeaderStopped(t *testing.T) { eachOpened(t, leaderStopped[pgx.Tx], leaderStopped[*sql.Tx]) }

// A leader that is stopped for longer than its lease, and goes on, writes with the term that it
// had: a store that compares terms refuses that.
func leaderStopped[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	other := testbed.NewFixture(t, e, c)
	name := f.Key("stopped")
	store := f.MakeTable(t, "id int primary key, term bigint, late int", "(1, 0, 0), (2, 0, 0)")
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
