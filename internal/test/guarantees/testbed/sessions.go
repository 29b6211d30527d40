package testbed

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/eventually"
)

// Waiting is how many sessions of the fixture wait for a lock at the server.
func (f *Fixture[Tx]) Waiting(t *testing.T) int {
	t.Helper()
	return f.census.of(t, f.Label).waiting
}

// Waiters waits until exactly n sessions of the fixture wait for a lock at the server.
func (f *Fixture[Tx]) Waiters(t *testing.T, n int) {
	t.Helper()
	eventually.Every(t, fmt.Sprintf("%d waiters", n), PollEvery, func() bool { return f.Waiting(t) == n })
}

// Unused waits until the pool has all its connections back. pgxpool also takes those that are idle
// for a moment, when it looks after them.
func (f *Fixture[Tx]) Unused(t *testing.T) {
	t.Helper()
	if f.Pool.InUse != nil {
		eventually.Every(t, "no connection is in use", PollEvery, func() bool { return f.Pool.InUse() == 0 })
	}
}

// Transactions waits until exactly n sessions of the fixture are in a transaction.
func (f *Fixture[Tx]) Transactions(t *testing.T, n int) {
	t.Helper()
	eventually.Every(t, fmt.Sprintf("%d transactions", n), PollEvery,
		func() bool { return f.census.of(t, f.Label).open == n })
}

// Sessions is how many connections the fixture has at the server.
func (f *Fixture[Tx]) Sessions(t *testing.T) (n int) {
	t.Helper()
	if f.Postgres {
		return f.Total(t, "SELECT COUNT(*) FROM pg_stat_activity WHERE split_part(application_name, '#', 1) = '"+
			f.Label+"'")
	}
	return f.Total(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '"+f.Label+"'")
}

// KillSessions ends all sessions of the fixture, as an administrator does.
func (f *Fixture[Tx]) KillSessions(t *testing.T) {
	t.Helper()
	// It waits for their ends: a pooler would give a dying session to another client.
	f.eachSession(t, "pg_terminate_backend(pid, 5000)", "KILL")
}

// CancelStatements cancels the running statements of the fixture, and ends no session, as an
// administrator does.
func (f *Fixture[Tx]) CancelStatements(t *testing.T) {
	t.Helper()
	f.eachSession(t, "pg_cancel_backend(pid)", "KILL QUERY")
}

// eachSession calls a function of pid on PostgreSQL, or runs a statement on MySQL and MariaDB,
// for each session of the fixture.
func (f *Fixture[Tx]) eachSession(t *testing.T, function, statement string) {
	t.Helper()
	if f.Postgres {
		// An idle one behind a pooler is the fixture's no more, and may serve another next.
		_, err := f.Admin.Exec("SELECT "+function+" FROM pg_stat_activity WHERE split_part(application_name, "+
			"'#', 1) = $1 AND (state <> 'idle' OR NOT $2)", f.Label, f.Pooled)
		require.NoError(t, err)
		return
	}
	query := "SELECT id FROM information_schema.processlist WHERE db = ?"
	for _, id := range database.Column[int](t, f.Admin, query, f.Label) {
		_, _ = f.Admin.Exec(fmt.Sprintf("%s %d", statement, id)) // or it has ended by itself
	}
}

// Guest begins a caller's own transaction under the fixture's label.
func (f *Fixture[Tx]) Guest(t *testing.T) Tx { return f.Begin(t, f.DSNFor(f.Label, "", nil), 0) }

// Receive waits for what must come, much longer than that may take.
func Receive[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(eventually.Patience):
		require.Fail(t, "it does not come")
	}
	return value
}

// Stranger waits for the held key as another client, and says when it got it.
func (f *Fixture[Tx]) Stranger(t *testing.T, key string) <-chan time.Time {
	t.Helper()
	return NewSizedFixture(t, f.Engine, f.Client, 2, "").Waits(t, key)
}

// Waits waits for the held key, and says when it got it. It returns when the server has it in the
// queue.
func (f *Fixture[Tx]) Waits(t *testing.T, key string) <-chan time.Time {
	t.Helper()
	granted, done := make(chan time.Time, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(background)
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		lock, err := f.Locks.Mutex(key).Lock(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		granted <- time.Now()
		if err := lock.Unlock(background); err != nil {
			t.Error(err)
		}
	}()
	f.Waiters(t, 1)
	return granted
}

// Warm opens connections and prepares their statements.
func (f *Fixture[Tx]) Warm(t *testing.T, connections int) {
	t.Helper()
	for _, name := range []string{"warm", "warmer"} {
		var locks []*txlock.Lock
		for i := range connections + 1 {
			lock := Lock(t, f.Locks.Mutex(f.Key(fmt.Sprint(name, i))))
			locks = append(locks, lock)
		}
		for _, lock := range locks {
			require.NoError(t, lock.Unlock(background))
		}
	}
}

// KillSession ends the connection that tx runs on, as an administrator does.
func (f *Fixture[Tx]) KillSession(t *testing.T, tx Tx) {
	t.Helper()
	number, kill := "SELECT CONNECTION_ID()", "KILL "
	if f.Postgres {
		number, kill = "SELECT pg_backend_pid()", "SELECT pg_terminate_backend("
	}
	id := f.Read(t, tx, number)
	if f.Postgres {
		id += ")"
	}
	f.AsAdmin(t, kill+id)
}
