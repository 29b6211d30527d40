package guarantees

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/eventually"
	"github.com/txlock/txlock/internal/guarantees/testbed"
)

// oldProgram holds locks of the server's own, as programs did before they came to txlock: on a
// connection that goes to the server itself.
type oldProgram struct {
	conn            *sql.Conn
	take, try, give string // with %s for the lock
}

// oldLock is one of them, as SQL and as txlock have it.
type oldLock struct {
	arguments string
	beside    dialects.Legacy
}

func oldProgramOf[Tx any](t *testing.T, f *testbed.Fixture[Tx]) *oldProgram {
	t.Helper()
	conn, err := f.Admin.Conn(background)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	if f.Postgres {
		return &oldProgram{conn, "pg_advisory_lock(", "pg_try_advisory_lock(", "pg_advisory_unlock("}
	}
	return &oldProgram{conn, "GET_LOCK(", "GET_LOCK(", "RELEASE_LOCK("}
}

// oldLocks are two locks that no other test uses.
func oldLocks[Tx any](f *testbed.Fixture[Tx]) (a, b oldLock) {
	number := int32(crc32.ChecksumIEEE([]byte(f.Label)))
	if f.Postgres {
		text := strconv.Itoa(int(number))
		return oldLock{text, postgres.Advisory(int64(number))},
			oldLock{text + ", -7", postgres.AdvisoryPair(number, -7)}
	}
	return oldLock{"'" + f.Label + " é'", mysql.Named(f.Label + " é")},
		oldLock{"'" + f.Label + "'", mysql.Named(f.Label)}
}

func (p *oldProgram) ask(t *testing.T, function, arguments string) (granted bool) {
	t.Helper()
	var answer sql.NullString
	require.NoError(t, p.conn.QueryRowContext(background, "SELECT "+function+arguments+")").Scan(&answer))
	return answer.String == "1" || answer.String == "true"
}

func (p *oldProgram) tries(t *testing.T, l oldLock) (granted bool) {
	t.Helper()
	arguments := l.arguments
	if p.take == p.try {
		arguments += ", 0"
	}
	return p.ask(t, p.try, arguments)
}

func (p *oldProgram) leaves(t *testing.T, l oldLock) {
	t.Helper()
	require.True(t, p.ask(t, p.give, l.arguments), "the old program has not got the lock")
}

// endsHolder ends the session that has the lock.
func (p *oldProgram) endsHolder(t *testing.T, l oldLock) {
	t.Helper()
	if p.take != p.try { // PostgreSQL
		require.True(t, p.ask(t, "pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' AND "+
			"granted AND objsubid = 1 AND (classid::bigint << 32) | objid::bigint IN (", l.arguments))
		return
	}
	var session int
	require.NoError(t, p.conn.QueryRowContext(background, "SELECT IS_USED_LOCK("+l.arguments+")").Scan(&session))
	_, err := p.conn.ExecContext(background, fmt.Sprintf("KILL %d", session))
	require.NoError(t, err)
}

// counts waits for the lock, and counts the rows of a table under it.
func (p *oldProgram) counts(t *testing.T, l oldLock, table string) <-chan int {
	t.Helper()
	arguments := l.arguments
	if p.take == p.try {
		arguments += ", 60"
	}
	counted := make(chan int, 1)
	go func() {
		var answer sql.NullString
		n := -1
		err := p.conn.QueryRowContext(background, "SELECT "+p.take+arguments+")").Scan(&answer)
		if err == nil {
			err = p.conn.QueryRowContext(background, "SELECT COUNT(*) FROM "+table).Scan(&n)
		}
		if err != nil {
			t.Error(err)
		}
		counted <- n
	}()
	return counted
}

// free fails the test unless the old program can have the locks at once. A session that has ended
// with its connection may have them for a moment longer.
func (p *oldProgram) free(t *testing.T, locks ...oldLock) {
	t.Helper()
	for _, l := range locks {
		eventually.True(t, "the lock "+l.arguments+" is free", func() bool { return p.tries(t, l) })
		p.leaves(t, l)
	}
}

func (p *oldProgram) misses(t *testing.T, locks ...oldLock) {
	t.Helper()
	for _, l := range locks {
		require.False(t, p.tries(t, l), "the old program has got %s", l.arguments)
	}
}

// waitsBeside waits until n sessions of the fixture wait, for a row or for a lock beside one.
func waitsBeside[Tx any](t *testing.T, f *testbed.Fixture[Tx], n int) {
	t.Helper()
	if f.Postgres {
		f.Waiters(t, n)
		return
	}
	from := "performance_schema.threads WHERE PROCESSLIST_DB = '" + f.Label + "' AND PROCESSLIST_STATE"
	if f.MariaDB { // MySQL's process list fails where a statement of another session is no UTF-8
		from = "information_schema.processlist WHERE db = '" + f.Label + "' AND state"
	}
	eventually.Every(t, "sessions wait for a name", testbed.PollEvery, func() bool {
		return f.Total(t, "SELECT COUNT(*) FROM "+from+" = 'User lock'") == n
	})
}

// BesideExcludes shows that who holds a lock beside a Mutex, and who holds the Mutex, exclude each
// other, and that each verb gives it back with the lock, on every way out.
func BesideExcludes[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	old := oldProgramOf(t, f)
	a, b := oldLocks(f)
	key := f.Key("dual")
	m := f.Locks.Mutex(key).Beside(b.beside).Beside(a.beside)
	none := func(context.Context, Tx) error { return errors.New("the work has run") }
	held := func(ctx context.Context) {
		t.Helper()
		old.misses(t, a, b)
		f.Taken(t, key)
		_, err := m.TryLock(background)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
	}
	released := func() {
		t.Helper()
		old.free(t, a, b)
		f.Free(t, key)
	}

	for _, call := range []func(context.Context) (*txlock.Lock, error){m.Lock, m.TryLock} {
		lock, err := call(background)
		require.NoError(t, err)
		held(lock.Context())
		require.NoError(t, lock.Unlock(background))
		released()
	}
	table := f.MakeTable(t, "id int primary key")
	refused := errors.New("refused")
	for _, call := range []func(context.Context, func(context.Context, Tx) error) error{m.Do, m.TryDo} {
		for _, end := range []error{nil, refused} {
			require.ErrorIs(t, call(background, func(ctx context.Context, tx Tx) error {
				held(ctx)
				require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
				return end
			}), end)
			require.Equal(t, map[bool]int{true: 1, false: 0}[end == nil], f.Total(t, "SELECT COUNT(*) FROM "+table))
			released()
			f.AsAdmin(t, "DELETE FROM "+table)
		}
	}
	for want := 1; want <= 20; want++ { // it is given back behind the COMMIT, and not before
		var counted <-chan int
		require.NoError(t, m.Do(background, func(ctx context.Context, tx Tx) error {
			counted = old.counts(t, a, table)
			return f.Exec(ctx, tx, fmt.Sprintf("INSERT INTO %s VALUES (%d)", table, want))
		}))
		require.Equal(t, want, testbed.Receive(t, counted))
		old.leaves(t, a)
	}
	f.AsAdmin(t, "DELETE FROM "+table)
	require.PanicsWithValue(t, "work", func() {
		_ = m.Do(background, func(context.Context, Tx) error { panic("work") })
	})
	released()
	affected, err := m.Exec(background, txlock.Statement{SQL: "INSERT INTO " + table + " VALUES (7)", Rows: 1})
	require.NoError(t, err)
	require.Equal(t, []int64{1}, affected)
	released()

	// The old program has one of them: the first, or the last that is asked for.
	for _, l := range []oldLock{a, b} {
		require.True(t, old.tries(t, l))
		_, err := m.TryLock(background)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		require.ErrorIs(t, m.TryDo(background, none), txlock.ErrNotAcquired)
		_, err = m.Within(50 * time.Millisecond).Lock(background)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, " beside ")
		ctx, cancel := context.WithCancel(background)
		failed := make(chan error, 1)
		go func() { failed <- m.Do(ctx, none) }()
		waitsBeside(t, f, 1)
		f.Free(t, key) // who waits for the lock beside the row has not got that
		cancel()
		require.ErrorIs(t, testbed.Receive(t, failed), context.Canceled)
		got := make(chan error, 1)
		go func() {
			lock, err := m.Lock(background)
			if err == nil {
				err = lock.Unlock(background)
			}
			got <- err
		}()
		waitsBeside(t, f, 1)
		old.leaves(t, l)
		require.NoError(t, testbed.Receive(t, got))
		released()
	}
	// Somebody has the row: a wait for it that is broken off, and a try, give both locks back.
	row, err := f.Locks.Mutex(key).Lock(background)
	require.NoError(t, err)
	_, err = m.Within(50 * time.Millisecond).Lock(background)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	old.free(t, a, b)
	_, err = m.TryLock(background)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	old.free(t, a, b)
	require.NoError(t, row.Unlock(background))

	// A session that is killed.
	lock, err := m.Lock(background)
	require.NoError(t, err)
	f.KillSessions(t)
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	released()
}

// BesideInTransaction shows that LockTx takes locks beside the rows until the caller's transaction
// ends, or refuses where nobody could give them back.
func BesideInTransaction[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	old := oldProgramOf(t, f)
	a, b := oldLocks(f)
	m := f.Locks.Mutex(f.Key("dual")).Beside(a.beside, b.beside)
	f.Free(t, f.Key("dual"))
	tx := f.Guest(t)
	if !f.Postgres {
		require.ErrorContains(t, m.LockTx(background, tx), "nobody would give it back")
		require.ErrorContains(t, m.TryLockTx(background, tx), "nobody would give it back")
		old.free(t, a, b)
		require.NoError(t, f.End(background, tx, true))
		return
	}
	for _, call := range []func(context.Context, Tx) error{m.LockTx, m.TryLockTx} {
		for _, commit := range []bool{true, false} {
			tx := f.Guest(t)
			require.NoError(t, call(background, tx))
			old.misses(t, a, b)
			require.NoError(t, f.End(background, tx, commit))
			old.free(t, a, b)
		}
	}
	// A miss of the second one, or of the row, takes nothing.
	require.True(t, old.tries(t, b))
	require.ErrorIs(t, m.TryLockTx(background, tx), txlock.ErrNotAcquired)
	require.ErrorIs(t, m.Within(30*time.Millisecond).LockTx(background, tx), txlock.ErrNotAcquired)
	old.free(t, a)
	old.leaves(t, b)
	row, err := f.Locks.Mutex(f.Key("dual")).Lock(background)
	require.NoError(t, err)
	require.ErrorIs(t, m.TryLockTx(background, tx), txlock.ErrNotAcquired)
	old.free(t, a, b)
	require.NoError(t, row.Unlock(background))
	require.NoError(t, m.LockTx(background, tx))
	old.misses(t, a, b)
	require.NoError(t, f.End(background, tx, true))
	old.free(t, a, b)

	strict := f.Begin(t, f.DSNFor(f.Label, "", nil), sql.LevelSerializable)
	require.ErrorIs(t, m.LockTx(background, strict), txlock.ErrIsolation)
	old.free(t, a, b)
	require.NoError(t, f.End(background, strict, false))
}
