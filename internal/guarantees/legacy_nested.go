package guarantees

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/guarantees/testbed"
)

// BesideNested shows that a session takes locks beside the rows with a nested call, keeps them
// until it ends, and asks for none of them twice.
func BesideNested[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewSizedFixture(t, e, c, testbed.PoolSize, "")
	old := oldProgramOf(t, f)
	a, b := oldLocks(f)
	plain := f.Locks.Mutex(f.Key("dual"))
	dual := plain.Beside(a.beside)
	lock, err := plain.Lock(background)
	require.NoError(t, err)
	old.free(t, a)
	require.True(t, old.tries(t, a))
	_, err = dual.TryLock(lock.Context())
	require.ErrorIs(t, err, txlock.ErrNotAcquired, "the row is held, the lock beside it is not")
	old.leaves(t, a)
	nested, err := dual.Lock(lock.Context())
	require.NoError(t, err)
	again, err := dual.TryLock(nested.Context())
	require.NoError(t, err)
	both, err := dual.Beside(b.beside).TryLock(again.Context())
	require.NoError(t, err)
	for _, held := range []*txlock.Lock{nested, again, both} {
		old.misses(t, a, b)
		require.NoError(t, held.Unlock(background))
	}
	old.misses(t, a, b)
	require.NoError(t, lock.Unlock(background))
	old.free(t, a, b)

	// In the work of a Do, and of a Do in it.
	require.True(t, old.tries(t, b))
	require.NoError(t, dual.Do(background, func(ctx context.Context, _ Tx) error {
		require.ErrorIs(t, plain.Beside(b.beside).TryDo(ctx, func(context.Context, Tx) error { return nil }),
			txlock.ErrNotAcquired)
		old.leaves(t, b)
		require.Error(t, f.Locks.Mutex(f.Key("inner")).Beside(b.beside).Do(ctx, func(context.Context, Tx) error {
			old.misses(t, a, b)
			return errors.New("undone")
		}))
		old.misses(t, a)
		return plain.Beside(b.beside).Do(ctx, func(context.Context, Tx) error {
			old.misses(t, a, b)
			return nil
		})
	}))
	old.free(t, a, b)

	besideMany(t, f, old)
	if f.Postgres {
		besideSharing(t, f, old)
	} else {
		besideNames(t, f, old)
	}
}

// besideMany shows that callers that name one other lock among many do not wait for each other's.
func besideMany[Tx any](t *testing.T, f *testbed.Fixture[Tx], old *oldProgram) {
	t.Helper()
	a, b := oldLocks(f)
	var more []dialects.Legacy
	for i := range int32(3) {
		more = append(more, postgres.AdvisoryPair(-1<<31, i))
		if !f.Postgres {
			more[i] = mysql.Named(fmt.Sprint(" ", f.Label, i))
		}
	}
	few := f.Locks.Mutex(f.Key("dual")).Beside(more...)
	holder, err := few.Beside(a.beside).Lock(background)
	require.NoError(t, err)
	next := make(chan *txlock.Lock, 1)
	go func() {
		lock, err := few.Beside(b.beside).Lock(background)
		if err != nil {
			t.Error(err)
		}
		next <- lock
	}()
	waitsBeside(t, f, 1) // at the server
	require.NoError(t, holder.Unlock(background))
	lock := testbed.Receive(t, next)
	old.misses(t, b)
	require.NoError(t, lock.Unlock(background))
	old.free(t, a, b)
}

// besideSharing shows that a nested call with Shared shares the lock beside a row that its session
// has alone.
func besideSharing[Tx any](t *testing.T, f *testbed.Fixture[Tx], old *oldProgram) {
	t.Helper()
	a, _ := oldLocks(f)
	plain := f.Locks.Mutex(f.Key("dual"))
	lock, err := plain.Lock(background)
	require.NoError(t, err)
	_, err = old.conn.ExecContext(background, "SELECT pg_advisory_lock_shared("+a.arguments+")")
	require.NoError(t, err)
	nested, err := plain.Beside(a.beside).Shared().TryLock(lock.Context())
	require.NoError(t, err)
	_, err = old.conn.ExecContext(background, "SELECT pg_advisory_unlock_shared("+a.arguments+")")
	require.NoError(t, err)
	old.misses(t, a)
	require.NoError(t, nested.Unlock(background))
	require.NoError(t, lock.Unlock(background))
	old.free(t, a)
}

// besideNames shows what becomes of names in another spelling, and of those that the server
// refuses.
func besideNames[Tx any](t *testing.T, f *testbed.Fixture[Tx], old *oldProgram) {
	t.Helper()
	a, _ := oldLocks(f)
	plain, other := f.Locks.Mutex(f.Key("dual")), f.Locks.Mutex(f.Key("other"))
	job := oldLock{"'" + f.Label + " Job'", mysql.Named(f.Label + " Job")}
	lock, err := plain.Beside(job.beside).Lock(background)
	require.NoError(t, err)
	row, err := other.Lock(background)
	require.NoError(t, err)
	_, err = other.Beside(mysql.Named(f.Label + " job")).TryLock(lock.Context())
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	old.misses(t, job)
	require.NoError(t, row.Unlock(background))
	require.NoError(t, lock.Unlock(background))
	old.free(t, job)

	table := f.MakeTable(t, "id int primary key")
	tooLong := mysql.Named(strings.Repeat("é", 97))
	require.NoError(t, plain.Do(background, func(ctx context.Context, tx Tx) error {
		require.Error(t, other.Beside(a.beside, tooLong).TryDo(ctx, func(context.Context, Tx) error { return nil }))
		return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)")
	}))
	require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table))
	old.free(t, a)
}

// BesideRefused shows that locks of another database, and locks that are none, are errors that
// change nothing.
func BesideRefused[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	a, _ := oldLocks(f)
	other := postgres.Advisory(1)
	if f.Postgres {
		other = mysql.Named("job")
	}
	m := f.Locks.Mutex(f.Key("dual"))
	tx := f.Guest(t)
	for what, m := range map[string]*txlock.Mutex[Tx]{
		"this Locker's database":  m.Beside(other),
		"names no lock":           m.Beside(),
		"a semaphore several":     f.Locks.Semaphore(f.Key("api"), 2).Beside(a.beside),
		"the name is empty":       m.Beside(mysql.Named("")),
		"at most 32 are possible": m.Beside(many(33)...),
		"must be positive":        m.Within(-1).Beside(a.beside),
	} {
		_, err := m.Lock(background)
		require.ErrorContains(t, err, what)
		require.ErrorContains(t, m.LockTx(background, tx), what)
	}
	require.NoError(t, f.End(background, tx, true))
	err := f.Locks.Election(f.Key("jobs"), "me").Beside(other).Lead(background, nil)
	require.ErrorContains(t, err, "this Locker's database")
	if !f.Postgres {
		_, err := m.Shared().Beside(a.beside).Lock(background)
		require.ErrorContains(t, err, "no shared form")
		f.Free(t, f.Key("dual"))
		return
	}
	old := oldProgramOf(t, f)
	readers := m.Beside(a.beside).Shared()
	first, err := readers.Lock(background)
	require.NoError(t, err)
	second, err := readers.TryLock(background)
	require.NoError(t, err)
	old.misses(t, a)
	require.NoError(t, first.Unlock(background))
	old.misses(t, a)
	require.NoError(t, second.Unlock(background))
	old.free(t, a)
}

func many(n int) (locks []dialects.Legacy) {
	for i := range n {
		locks = append(locks, postgres.Advisory(int64(i)))
	}
	return locks
}

// BesideLeader shows that a leader has the lock beside its seat as long as it leads.
func BesideLeader[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	old := oldProgramOf(t, f)
	a, _ := oldLocks(f)
	require.True(t, old.tries(t, a), "the old program leads")
	fresh := candidacy(t, f.Locks.Election(f.Key("jobs"), "new").Beside(a.beside))
	waitsBeside(t, f, 1)
	require.Empty(t, fresh.terms)
	old.leaves(t, a)
	leads := testbed.Receive(t, fresh.terms)
	old.misses(t, a)
	old.endsHolder(t, a) // and no other session: the next term may come at once
	testbed.Receive(t, leads.ctx.Done())
	leads = testbed.Receive(t, fresh.terms)
	old.misses(t, a)
	leads.end <- nil
	require.NoError(t, testbed.Receive(t, fresh.over))
	old.free(t, a)
}
