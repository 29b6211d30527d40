//go:build unix

package faults

import (
	"database/sql"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

func TestHolderStopped(t *testing.T) {
	testbed.EachOpened(t, holderStopped[pgx.Tx], holderStopped[*sql.Tx])
}

// A holder that is stopped for longer than its lease loses the lock. When it goes on it is told so,
// and cannot commit.
func holderStopped[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key")
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
	testbed.EachOpened(t, stoppedWhileActive[pgx.Tx], stoppedWhileActive[*sql.Tx])
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
	testbed.EachOpened(t, stoppedHolderAsksAgain[pgx.Tx], stoppedHolderAsksAgain[*sql.Tx])
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
