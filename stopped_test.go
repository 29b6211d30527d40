//go:build unix

package txlock_test

import (
	"database/sql"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestHolderStopped(t *testing.T) { eachOpened(t, holderStopped[pgx.Tx], holderStopped[*sql.Tx]) }

// A holder that is stopped for longer than its lease loses the lock, is told so when it goes on, and cannot commit.
func holderStopped[Tx any](t *testing.T, e *engine, c client[Tx]) {
	const lease = time.Second
	f := newFixture(t, e, c)
	table := f.makeTable(t, "id int primary key")
	t.Setenv("TXLOCK_TEST_STATEMENT", "INSERT INTO "+table+" VALUES (1)")
	for part, ready := range map[string]string{"hold": "holds", "work": "working"} {
		holder := e.startPartner(t, part, e.dsn(f.label, "", nil), f.key(part), lease)
		for holder.next(t) != ready {
		}
		granted := f.stranger(t, f.key(part))
		require.NoError(t, holder.Process.Signal(syscall.SIGSTOP))
		stopped := time.Now()
		require.WithinDuration(t, stopped, receive(t, granted), lease+time.Second+soon)
		require.NoError(t, holder.Process.Signal(syscall.SIGCONT))
		continued := time.Now()
		require.Equal(t, "lost", holder.next(t), "its context")
		require.WithinDuration(t, continued, time.Now(), soon)
		require.Equal(t, "lost", holder.next(t), "Unlock, or Do")
		require.NoError(t, holder.Wait())
	}
	require.Zero(t, f.total(t, "SELECT COUNT(*) FROM "+table))
}
