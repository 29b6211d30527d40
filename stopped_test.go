//go:build unix

package txlock_test

import (
	"database/sql"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestHolderStopped(t *testing.T) { eachOpened(t, holderStopped[pgx.Tx], holderStopped[*sql.Tx]) }

// A holder that is stopped for longer than its lease loses the lock, is told so when it goes on,
// and cannot commit.
func holderStopped[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	table := f.makeTable(t, "id int primary key")
	t.Setenv("TXLOCK_TEST_STATEMENT", "INSERT INTO "+table+" VALUES (1)")
	holders, grants := map[string]*partner{}, map[string]<-chan time.Time{}
	for part, ready := range map[string]string{"hold": "holds", "work": "working"} {
		holders[part], grants[part] = f.stoppedPartner(t, part, ready)
	}
	for part, holder := range holders {
		receive(t, grants[part])
		require.NoError(t, holder.Process.Signal(syscall.SIGCONT))
		require.Equal(t, "lost", holder.next(t), "its context")
		require.Equal(t, "lost", holder.next(t), "Unlock, or Do")
		holder.ended(t)
	}
	require.Zero(t, f.total(t, "SELECT COUNT(*) FROM "+table))
}

// stoppedPartner is a process that has said that it is ready, and was stopped when a stranger
// waited for its key, and says when the stranger got that. The work is silent from the start: its
// lease of a few seconds is to be over behind the stop, and not before.
func (f *fixture[Tx]) stoppedPartner(t *testing.T, part, ready string) (*partner, <-chan time.Time) {
	t.Helper()
	stranger := newParallelFixture(t, f.engine, f.client, 2, "")
	stranger.free(t, f.key(part)) // so that it need not connect, and read the number of slots, while the lease runs
	holder := f.startPartner(t, part, f.dsn(f.label, "", nil), f.key(part), 3*time.Second, os.Stderr)
	for holder.next(t) != ready {
	}
	granted := stranger.waits(t, f.key(part))
	require.NoError(t, holder.Process.Signal(syscall.SIGSTOP))
	return holder, granted
}

func TestStoppedHolderAsksAgain(t *testing.T) {
	eachOpened(t, stoppedHolderAsksAgain[pgx.Tx], stoppedHolderAsksAgain[*sql.Tx])
}

// A holder that was stopped and asks, as soon as it goes on, for what it holds is not told that it
// holds it.
func stoppedHolderAsksAgain[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	holder, granted := f.stoppedPartner(t, "again", "holds")
	receive(t, granted)
	continued := time.Now()
	require.NoError(t, holder.Process.Signal(syscall.SIGCONT))
	last, err := strconv.ParseInt(holder.next(t), 10, 64)
	require.NoError(t, err)
	require.Less(t, last, continued.UnixNano())
	require.Equal(t, "lost", holder.next(t), "its context")
	require.Equal(t, "lost", holder.next(t), "Unlock")
	holder.ended(t)
}
