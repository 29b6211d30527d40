package txlock_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/eventually"
	"github.com/txlock/txlock/internal/servers"
)

// apart calls what reads the server's views. On MariaDB it keeps its distance from others who read
// them.
func (e *engine) apart(read func()) {
	if e.Kind == servers.MariaDB {
		e.views.ask(read)
	} else {
		read()
	}
}

// look is Inspect of keys.
func (f *fixture[Tx]) look(t *testing.T, keys ...string) (holdings []txlock.Holding) {
	t.Helper()
	f.apart(func() {
		var err error
		holdings, err = f.locks.Inspect(background, keys...)
		require.NoError(t, err)
	})
	return holdings
}

// listsHeld says whether the server lists rows that are held without being awaited, and the last
// statements of their holders.
func (e *engine) listsHeld() bool { return e.Kind != servers.MariaDB }

// sessionSQL is the number that the server has for the session.
func (e *engine) sessionSQL() string {
	if e.postgres {
		return "SELECT pg_backend_pid()"
	}
	return "SELECT CONNECTION_ID()"
}

// holdInDo has a Do hold a key, until release is called, and returns its session's number.
func (f *fixture[Tx]) holdInDo(t *testing.T, key string) (session string, release func() error) {
	t.Helper()
	held, done, ended := make(chan string, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- f.locks.Mutex(key).Do(background, func(ctx context.Context, tx Tx) error {
			session, err := f.query(ctx, tx, f.sessionSQL())
			held <- session
			<-done
			return err
		})
	}()
	select {
	case session = <-held:
	case err := <-ended:
		require.NoError(t, err)
		require.Fail(t, "Do has not run its work")
	}
	return session, func() error { close(done); return <-ended }
}

// queue has n callers of Lock wait for a key, one after the other. Each unlocks when it is told to.
func (f *fixture[Tx]) queue(t *testing.T, n int, key string) (granted chan *txlock.Lock) {
	t.Helper()
	granted = make(chan *txlock.Lock, n)
	for i := range n {
		go func() {
			lock, err := f.locks.Mutex(key).Lock(background)
			if err == nil {
				granted <- lock
			}
		}()
		f.waiters(t, i+1)
	}
	return granted
}

func inspectShows[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	key := f.key("inspected")
	require.Empty(t, f.look(t, key), "nobody holds it")
	before := time.Now().Add(-1100 * time.Millisecond) // MariaDB knows whole seconds
	session, release := f.holdInDo(t, key)
	granted := f.queue(t, 3, key)

	asked := time.Now()
	holdings := f.look(t, key)
	took := time.Since(asked)
	require.Len(t, holdings, 1)
	h := holdings[0]
	require.Equal(t, f.table(), h.Table)
	require.Empty(t, h.Column)
	require.Regexp(t, `^\d+$`, h.Row)
	require.Equal(t, key, h.Key)
	require.NotNil(t, h.Holder)
	require.Equal(t, session, h.Holder.ID)
	require.True(t, h.Holder.Idle)
	require.NotEmpty(t, h.Holder.User)
	require.NotEmpty(t, h.Holder.Host)
	require.False(t, h.Holder.Since.Before(before), "%v, %v", h.Holder.Since, before)
	require.False(t, h.Holder.Since.After(time.Now().Add(time.Second)))
	if e.tells {
		require.Equal(t, key, h.Holder.Key)
		require.Equal(t, os.Getpid(), h.Holder.Process)
		require.Contains(t, strings.ToUpper(h.Holder.Statement), strings.ToUpper(e.sessionSQL()))
	}
	require.Len(t, h.Waiters, 3)
	longest := time.Hour
	for _, w := range h.Waiters {
		if e.postgres { // one clock for all; elsewhere each one's is read when its turn comes
			took = 0
			require.WithinDuration(t, h.Holder.Since.Add(h.Holder.For), w.Since.Add(w.For), 2*time.Microsecond)
		}
		require.Equal(t, key, w.Key)
		require.Equal(t, os.Getpid(), w.Process)
		require.False(t, w.Idle)
		require.Contains(t, strings.ToLower(w.Statement), "for update")
		require.LessOrEqual(t, w.For, longest+took, "in the order of the queue")
		longest = w.For
	}

	// The queue is served as it was shown.
	require.NoError(t, release())
	for _, next := range h.Waiters {
		lock := <-granted
		now := f.look(t, key)
		require.Len(t, now, 1)
		require.Equal(t, next.ID, now[0].Holder.ID)
		require.NoError(t, lock.Unlock(background))
	}
	require.Empty(t, f.look(t, key))
	f.unlabelled(t)
}

// A waiter's hold begins when it is granted, not when its transaction began.
func inspectSince[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	if !e.tells {
		return // there the server knows when the transaction began
	}
	key := f.key("since")
	_, release := f.holdInDo(t, key)
	granted := f.queue(t, 1, key)
	waited := f.look(t, key)[0].Waiters[0]
	require.NoError(t, release())
	lock := <-granted
	h := f.look(t, key)[0]
	require.False(t, h.Holder.Since.Before(waited.Since.Add(waited.For).Add(-20*time.Millisecond)), "%v, %v",
		h.Holder.Since, waited)
	require.Less(t, h.Holder.For, time.Since(waited.Since))
	require.NoError(t, lock.Unlock(background))
}

// Joined keys show as well, and what is released does not.
func inspectNested[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	few, look := f.fewSlots(t)
	// in slots of their own, and short enough for PostgreSQL to show them all
	const outer, inner, odd = "o", "i", "q'é*"
	lock, err := few.Mutex(outer).Lock(background)
	require.NoError(t, err)
	nested, err := few.Mutex(inner).Lock(lock.Context())
	require.NoError(t, err)
	other, err := few.Mutex(odd).TryLock(background)
	require.NoError(t, err)
	holdings := look()
	require.Len(t, holdings, 3)
	sessions := map[string]string{}
	for _, h := range holdings {
		require.NotNil(t, h.Holder)
		require.Empty(t, h.Waiters)
		sessions[h.Key] = h.Holder.ID
	}
	if e.tells {
		require.Len(t, sessions, 3)
		require.Contains(t, sessions, inner)
		require.Contains(t, sessions, odd)
		require.Equal(t, sessions[outer], sessions[inner])
		require.NotEqual(t, sessions[outer], sessions[odd])
	}
	require.NoError(t, other.Unlock(background))
	require.Len(t, look(), 2)
	require.NoError(t, nested.Unlock(background))
	require.NoError(t, lock.Unlock(background))
	require.Empty(t, look())
	f.unlabelled(t)
}

// unlabelled shows that no session in the pool still says that it locks something.
func (f *fixture[Tx]) unlabelled(t *testing.T) {
	t.Helper()
	if f.postgres {
		require.Zero(t, f.count(t, "SELECT COUNT(*) FROM pg_stat_activity WHERE split_part(application_name, '#', 1) "+
			"= $1 AND application_name LIKE '%#%'"))
		return
	}
	if f.Kind == servers.MySQL && f.client.name == mysqlSQL[0].name {
		require.Zero(t, f.count(t, `SELECT COUNT(*) FROM performance_schema.user_variables_by_thread v JOIN performance_schema.threads t
			ON t.THREAD_ID = v.THREAD_ID WHERE t.PROCESSLIST_DB = ? AND v.VARIABLE_NAME = 'txlock' AND v.VARIABLE_VALUE IS NOT NULL`))
	}
}

func inspectTx[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	key := f.key("tx")
	table := f.makeTable(t, "sku int primary key")
	f.admitted(t, "INSERT INTO "+table+" VALUES (1), (2)")
	rows := f.locks.Rows(table, "sku", 1, 2)
	tx := c.begin(t, f.dsn(f.label, "", nil), 0)
	require.NoError(t, f.locks.Mutex(key).LockTx(background, tx))
	granted := f.queue(t, 1, key)
	h := f.look(t, key)
	require.Len(t, h, 1)
	require.NotNil(t, h[0].Holder)
	require.Equal(t, key, h[0].Key, "its waiter says so")
	require.Len(t, h[0].Waiters, 1)
	require.NoError(t, c.end(background, tx, false))
	lock := <-granted

	// Rows of the caller's own table show with their values.
	owner, err := rows.Lock(background)
	require.NoError(t, err)
	waiting := make(chan *txlock.Lock, 1)
	go func() {
		lock, err := f.locks.Rows(table, "sku", 2).Lock(background)
		if err == nil {
			waiting <- lock
		}
	}()
	f.waiters(t, 1)
	shown := map[string]txlock.Holding{}
	for _, h := range f.lookAtRows(t) {
		if h.Table == table {
			shown[h.Row] = h
		}
	}
	require.Contains(t, shown, "2")
	require.Equal(t, "sku", shown["2"].Column)
	require.NotNil(t, shown["2"].Holder)
	require.Len(t, shown["2"].Waiters, 1)
	if e.listsHeld() {
		require.Contains(t, shown, "1")
		require.Equal(t, shown["2"].Holder.ID, shown["1"].Holder.ID)
		require.Empty(t, shown["1"].Waiters)
	}
	require.NoError(t, owner.Unlock(background))
	require.NoError(t, (<-waiting).Unlock(background))
	require.NoError(t, lock.Unlock(background))
}

// lookAtRows is Inspect of all that a Locker with a lock table of the fixture's own sees.
func (f *fixture[Tx]) lookAtRows(t *testing.T) []txlock.Holding {
	t.Helper()
	_, look := f.fewSlots(t)
	return look()
}

// fewSlots is a Locker with a lock table of the fixture's own, and Inspect of all of it: on MariaDB
// that waits for all that is held, which other tests must not meet.
func (f *fixture[Tx]) fewSlots(t *testing.T) (few *txlock.Locker[Tx], look func() []txlock.Holding) {
	t.Helper()
	name := f.label + ".few_slots"
	if f.postgres {
		name = f.label + "_few"
	}
	driver, p := f.connect(t, f.dsn(f.label, "", nil), 8)
	few = txlock.New(driver, txlock.WithTable(name), txlock.WithSlots(4))
	require.NoError(t, few.Install(background))
	t.Cleanup(func() {
		require.NoError(t, few.Close())
		p.close()
		if f.postgres {
			f.admitted(t, "DROP TABLE IF EXISTS "+name)
		}
	})
	return few, func() (holdings []txlock.Holding) {
		f.apart(func() {
			var err error
			holdings, err = few.Inspect(background)
			require.NoError(t, err)
		})
		return holdings
	}
}

func breaks[Tx any](t *testing.T, e *engine, c client[Tx]) {
	log := &logbook{}
	f := newSizedFixture(t, e, c, poolSize, "", log.option())
	key := f.key("stuck")
	table := f.makeTable(t, "id int primary key")
	done, _ := f.startWork(key, table)
	granted := f.queue(t, 1, key)
	stuck := f.look(t, key)[0]
	require.NoError(t, f.locks.Break(background, stuck))
	require.ErrorIs(t, <-done, txlock.ErrLost)
	require.Zero(t, f.total(t, "SELECT COUNT(*) FROM "+table))
	eventually.Every(t, "both ends are in the log", time.Millisecond, func() bool { return len(log.records(t)) == 2 })
	for _, record := range log.records(t) { // that of who broke it, and that of who lost it
		require.Contains(t, record["lock"], key)
	}
	next := <-granted

	// What was shown is over: nobody else is harmed.
	err := f.locks.Break(background, stuck)
	require.ErrorIs(t, err, txlock.ErrNotHeld)
	require.ErrorContains(t, err, key[:10])
	require.NoError(t, next.Context().Err())
	require.NoError(t, next.Unlock(background))
	err = f.locks.Break(background, txlock.Holding{})
	require.ErrorIs(t, err, txlock.ErrNotHeld)
	require.NotContains(t, err.Error(), "slot")
	require.ErrorIs(t, f.locks.Break(background, txlock.Holding{Table: stuck.Table, Row: stuck.Row}), txlock.ErrNotHeld)
	require.ErrorIs(t, f.locks.Break(background, txlock.Holding{Holder: &txlock.Session{ID: "1"}}), txlock.ErrNotHeld)

	// The same session, in its next transaction, is not the one that was shown.
	one := newSizedFixture(t, e, c, 1, "")
	key = one.key("again")
	first, err := one.locks.Mutex(key).Lock(background)
	require.NoError(t, err)
	shown := f.look(t, key)[0]
	require.NoError(t, first.Unlock(background))
	again, err := one.locks.Mutex(key).Lock(background)
	require.NoError(t, err)
	require.ErrorIs(t, f.locks.Break(background, shown), txlock.ErrNotHeld)
	require.NoError(t, again.Context().Err())
	require.NoError(t, again.Unlock(background))
}

func inspectRefuses[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	_, err := f.locks.Inspect(background, "")
	require.ErrorContains(t, err, "empty")
	ended, cancel := context.WithCancel(background)
	cancel()
	_, err = f.locks.Inspect(ended)
	require.ErrorIs(t, err, context.Canceled)
	driver, p := f.connect(t, f.dsn(f.label, "", nil), 1)
	defer p.close()
	_, err = txlock.New(driver, txlock.WithTable("no_such_table")).Inspect(background)
	require.ErrorIs(t, err, txlock.ErrNotInstalled)
	require.NoError(t, f.locks.Close())
	_, err = f.locks.Inspect(background)
	require.ErrorContains(t, err, "closed")
	require.ErrorContains(t, f.locks.Break(background, txlock.Holding{}), "closed")
}
