package txlock_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/eventually"
	"github.com/txlock/txlock/internal/wire"
)

func doEnds[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	table := f.makeTable(t, "id int primary key")
	m := f.locks.Mutex(f.key("do"))
	insert := func(ctx context.Context, tx Tx, id string) {
		require.NoError(t, f.exec(ctx, tx, "INSERT INTO "+table+" VALUES ("+id+")"))
		f.taken(t, f.key("do"))
	}
	require.NoError(t, m.Do(background, func(ctx context.Context, tx Tx) error {
		insert(ctx, tx, "1")
		return nil
	}))
	require.Equal(t, errWork, m.Do(background, func(ctx context.Context, tx Tx) error {
		insert(ctx, tx, "2")
		return errWork
	}))
	require.PanicsWithValue(t, "boom", func() {
		_ = m.Do(background, func(ctx context.Context, tx Tx) error {
			insert(ctx, tx, "3")
			panic("boom")
		})
	})
	var gone errgroup.Group
	ended := make(chan struct{})
	gone.Go(func() error {
		defer close(ended)
		return m.Do(background, func(ctx context.Context, tx Tx) error {
			insert(ctx, tx, "4")
			runtime.Goexit()
			return nil
		})
	})
	<-ended
	f.free(t, f.key("do"))
	require.Equal(t, 1, f.total(t, "SELECT COUNT(*) FROM "+table))
	require.ErrorContains(t, m.Do(background, nil), "nil work")
}

func selfEnded[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	table := f.makeTable(t, "id int primary key")
	m := f.locks.Mutex(f.key("self"))
	endings := map[string][]string{
		"COMMIT": {"COMMIT"}, "ROLLBACK": {"ROLLBACK"}, "a new transaction": {"COMMIT", "BEGIN"},
		"rolled back and begun": {"ROLLBACK", "BEGIN"},
	}
	if e.postgres { // which the guard does not refuse, but the commit does
		endings["a new writing transaction"] = []string{"COMMIT", "BEGIN READ WRITE"}
		endings["rolled back and begun for writing"] = []string{"ROLLBACK", "BEGIN READ WRITE"}
	}
	if !e.postgres {
		endings["DDL"] = []string{"CREATE TABLE " + f.label + ".made (id int primary key)"}
	}
	for name, ending := range endings {
		for _, nested := range []bool{false, true} {
			before := 1
			if ending[0] == "ROLLBACK" {
				before = 0
			}
			f.admitted(t, "DELETE FROM "+table)
			work := func(ctx context.Context, tx Tx) error {
				if err := f.exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"); err != nil {
					return err
				}
				for _, statement := range ending {
					if err := f.exec(ctx, tx, statement); err != nil {
						return err
					}
				}
				_ = f.exec(ctx, tx, "INSERT INTO "+table+" VALUES (2)") // must not become visible, whatever it says
				_ = f.exec(ctx, tx, "INSERT INTO "+table+" VALUES (3)")
				return nil
			}
			var err error
			if nested {
				err = m.Do(background, func(ctx context.Context, tx Tx) error { return m.Do(ctx, work) })
			} else {
				err = m.Do(background, work)
			}
			// the new transaction is read only, and its failed INSERT has aborted it
			if e.postgres && ending[len(ending)-1] == "BEGIN" && !nested {
				require.ErrorContains(t, err, "rolled back")
			} else {
				require.ErrorIs(t, err, txlock.ErrLost, "%s, nested %v", name, nested)
			}
			require.Equal(t, before, f.total(t, "SELECT COUNT(*) FROM "+table), "%s, nested %v", name, nested)
			require.Zero(t, f.total(t, "SELECT COUNT(*) FROM "+table+" WHERE id > 1"), name)
			f.free(t, f.key("self"))
			if name == "DDL" {
				f.admitted(t, "DROP TABLE "+f.label+".made")
			}
		}
	}
	// With an error of its own it is that error, and still nothing is visible.
	require.ErrorIs(t, m.Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, f.exec(ctx, tx, "ROLLBACK"))
		_ = f.exec(ctx, tx, "INSERT INTO "+table+" VALUES (7)")
		return errWork
	}), errWork)
	// And through the handle.
	for _, commit := range []bool{true, false} {
		require.ErrorIs(t, m.Do(background, func(ctx context.Context, tx Tx) error { return f.end(ctx, tx, commit) }),
			txlock.ErrLost)
	}
	require.Zero(t, f.total(t, "SELECT COUNT(*) FROM "+table+" WHERE id > 1"))
	// The pool's connections are as before: another client's work commits.
	require.NoError(t, m.Do(background, func(ctx context.Context, tx Tx) error {
		return f.exec(ctx, tx, "INSERT INTO "+table+" VALUES (9)")
	}))
	require.Equal(t, 1, f.total(t, "SELECT COUNT(*) FROM "+table+" WHERE id = 9"))
}

// deadlock makes two transactions want each other's row, of which tx is the victim, and returns the
// error of its statement: InnoDB rolls back the one that wrote less, and PostgreSQL the first that
// has waited as long as its deadlock_timeout
// (https://www.postgresql.org/docs/current/runtime-config-locks.html).
func (f *fixture[Tx]) deadlock(t *testing.T, ctx context.Context, tx Tx, table string) error {
	t.Helper()
	require.NoError(t, f.exec(ctx, tx, "UPDATE "+table+" SET n = n + 1 WHERE id = 1"))
	other := f.guest(t)
	if f.postgres {
		require.NoError(t, f.exec(background, other, "SET LOCAL deadlock_timeout = '1h'"))
	}
	require.NoError(t, f.exec(background, other, "UPDATE "+table+" SET n = n + 1 WHERE id >= 2"))
	done := make(chan error, 1)
	go func() { done <- f.exec(background, other, "UPDATE "+table+" SET n = n + 1 WHERE id = 1") }()
	f.waiters(t, 1)
	err := f.exec(ctx, tx, "UPDATE "+table+" SET n = n + 1 WHERE id = 2")
	require.ErrorContains(t, err, "eadlock")
	require.NoError(t, <-done, "the victim has let its rows go")
	require.NoError(t, f.end(background, other, false))
	return err
}

func (f *fixture[Tx]) makeDeadlockTable(t *testing.T) string {
	table := f.makeTable(t, "id int primary key, n int")
	f.admitted(t, "INSERT INTO "+table+" VALUES (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0)")
	return table
}

func swallowedDeadlock[Tx any](t *testing.T, e *engine, c client[Tx]) {
	log := &logbook{}
	f := newSizedFixture(t, e, c, poolSize, "", log.option())
	table := f.makeDeadlockTable(t)
	for _, nested := range []bool{false, true} {
		work := func(ctx context.Context, tx Tx) error {
			_ = f.deadlock(t, ctx, tx, table) // swallowed
			_ = f.exec(ctx, tx, "UPDATE "+table+" SET n = 100 WHERE id = 6")
			return nil
		}
		m := f.locks.Mutex(f.key("deadlock"))
		err := m.Do(background, func(ctx context.Context, tx Tx) error {
			if nested {
				_ = m.Do(ctx, work) // swallowed again
				return nil
			}
			return work(ctx, tx)
		})
		switch {
		case !e.postgres:
			require.ErrorIs(t, err, txlock.ErrLost)
		case !nested:
			require.Error(t, err, "PostgreSQL cannot commit an aborted transaction")
		default:
			require.NoError(t, err, "the savepoint took the deadlock")
		}
		require.Zero(t, f.total(t, "SELECT n FROM "+table+" WHERE id = 6"))
		f.free(t, f.key("deadlock"))
	}
	if e.postgres {
		require.Empty(t, log.records(t))
	} else { // nested, where the error may be swallowed; the other one is Do's own
		log.one(t, "WARN", "lost a lock")
	}
}

func swallowedError[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	table := f.makeTable(t, "id int primary key")
	work := func(ctx context.Context, tx Tx) error {
		require.NoError(t, f.exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
		require.Error(t, f.exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
		return nil
	}
	m := f.locks.Mutex(f.key("swallowed"))
	if !e.postgres { // a failed statement is undone alone there, and the rest is committed
		require.NoError(t, m.Do(background, work))
		require.Equal(t, 1, f.total(t, "SELECT COUNT(*) FROM "+table))
		return
	}
	require.ErrorContains(t, m.Do(background, work), "rolled back")
	require.Zero(t, f.total(t, "SELECT COUNT(*) FROM "+table))
	require.NoError(t, m.Do(background, func(ctx context.Context, tx Tx) error {
		require.ErrorContains(t, m.Do(ctx, work), "rolled back")
		return f.exec(ctx, tx, "INSERT INTO "+table+" VALUES (2)")
	}))
	require.Equal(t, 2, f.total(t, "SELECT id FROM "+table))
}

// killSession ends the connection that tx runs on, as an administrator does.
func (f *fixture[Tx]) killSession(t *testing.T, tx Tx) {
	t.Helper()
	number, kill := "SELECT CONNECTION_ID()", "KILL "
	if f.postgres {
		number, kill = "SELECT pg_backend_pid()", "SELECT pg_terminate_backend("
	}
	id, err := f.query(background, tx, number)
	require.NoError(t, err)
	if f.postgres {
		id += ")"
	}
	f.admitted(t, kill+id)
}

func killedConnection[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	table := f.makeTable(t, "id int primary key")
	m := f.locks.Mutex(f.key("killed"))

	// Work that notices nothing.
	err := m.Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, f.exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
		f.killSession(t, tx)
		return nil
	})
	require.ErrorIs(t, err, txlock.ErrLost)
	// Work that notices, and returns its error.
	err = m.Do(background, func(ctx context.Context, tx Tx) error {
		f.killSession(t, tx)
		return f.exec(ctx, tx, "INSERT INTO "+table+" VALUES (2)")
	})
	require.Error(t, err)
	// Work that notices, and swallows it.
	err = m.Do(background, func(ctx context.Context, tx Tx) error {
		f.killSession(t, tx)
		_ = f.exec(ctx, tx, "INSERT INTO "+table+" VALUES (3)")
		_ = f.exec(ctx, tx, "INSERT INTO "+table+" VALUES (3)")
		return nil
	})
	require.ErrorIs(t, err, txlock.ErrLost)
	require.Zero(t, f.total(t, "SELECT COUNT(*) FROM "+table))

	// A caller's transaction.
	tx := f.guest(t)
	f.killSession(t, tx)
	require.ErrorIs(t, m.LockTx(background, tx), txlock.ErrLost)
	_ = f.end(background, tx, false)

	// A Lock is told so by its Unlock, and by a Do in it.
	lock, err := m.Lock(background)
	require.NoError(t, err)
	require.ErrorIs(t, m.Do(lock.Context(), func(_ context.Context, tx Tx) error {
		f.killSession(t, tx)
		return nil
	}), txlock.ErrLost)
	require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrLost)
	next, err := m.Lock(background)
	require.NoError(t, err)
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	f.taken(t, f.key("killed"))
	require.NoError(t, next.Unlock(background))
}

func cutConnection[Tx any](t *testing.T, e *engine, c client[Tx]) {
	proxy, err := wire.Listen(e.address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	f := newSizedFixture(t, e, c, poolSize, proxy.Addr())
	m := f.locks.Mutex(f.key("cut"))
	table := f.makeTable(t, "id int primary key")

	lock, err := m.Lock(background)
	require.NoError(t, err)
	proxy.Cut()
	start := time.Now()
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrNotHeld)

	err = m.Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, f.exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
		proxy.Cut()
		return nil
	})
	require.ErrorIs(t, err, txlock.ErrLost)
	require.Zero(t, f.total(t, "SELECT COUNT(*) FROM "+table))

	// A waiter whose connection breaks gets an error and not the lock.
	holder := newFixture(t, e, c)
	held, err := holder.locks.Mutex(f.key("cut")).Lock(background)
	require.NoError(t, err)
	failed := make(chan error, 1)
	go func() {
		_, err := m.Lock(background)
		failed <- err
	}()
	f.waiters(t, 1)
	proxy.Cut()
	require.Error(t, <-failed)
	require.NoError(t, held.Unlock(background))
	require.Less(t, time.Since(start), 10*time.Second)

	// And everything works again.
	eventually.True(t, "the lock is free again", func() bool {
		lock, err := m.Lock(background)
		return err == nil && lock.Unlock(background) == nil
	})
}

func contextEndsInWork[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	table := f.makeTable(t, "id int primary key")
	m := f.locks.Mutex(f.key("ctx"))
	for _, nested := range []bool{false, true} {
		ctx, cancel := context.WithCancel(background)
		work := func(ctx context.Context, tx Tx) error {
			require.NoError(t, f.exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
			cancel()
			return nil
		}
		err := m.Do(ctx, func(ctx context.Context, tx Tx) error {
			if nested {
				return m.Do(ctx, work)
			}
			return work(ctx, tx)
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, f.total(t, "SELECT COUNT(*) FROM "+table))
		f.free(t, f.key("ctx"))
	}
	// And when the session breaks at the same time, the error says both.
	lock, err := m.Lock(background)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(lock.Context())
	err = m.Do(ctx, func(ctx context.Context, tx Tx) error {
		require.NoError(t, f.exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
		f.killSessions(t)
		f.transactions(t, 0)
		cancel()
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, txlock.ErrLost)
	require.NotContains(t, err.Error(), "the work failed")
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	require.Zero(t, f.total(t, "SELECT COUNT(*) FROM "+table))
}

func readsCurrent[Tx any](t *testing.T, e *engine, c client[Tx]) {
	f := newFixture(t, e, c)
	table := f.makeTable(t, "id int primary key, n int")
	f.admitted(t, "INSERT INTO "+table+" VALUES (1, 10)")
	m := f.locks.Mutex(f.key("current"))
	read := ""
	done := make(chan error, 1)
	require.NoError(t, m.Do(background, func(ctx context.Context, tx Tx) error {
		go func() {
			done <- m.Do(background, func(ctx context.Context, tx Tx) (err error) {
				read, err = f.query(ctx, tx, "SELECT n FROM "+table)
				return err
			})
		}()
		f.waiters(t, 1)
		return f.exec(ctx, tx, "UPDATE "+table+" SET n = 9")
	}))
	require.NoError(t, <-done)
	require.Equal(t, "9", strings.TrimSpace(read))

	// A key that joins a session which has read already.
	require.NoError(t, m.Do(background, func(ctx context.Context, tx Tx) error {
		if _, err := f.query(ctx, tx, "SELECT n FROM "+table); err != nil {
			return err
		}
		f.admitted(t, "UPDATE "+table+" SET n = 8")
		return f.locks.Mutex(f.key("joined")).Do(ctx, func(ctx context.Context, tx Tx) error {
			n, err := f.query(ctx, tx, "SELECT n FROM "+table)
			require.Equal(t, "8", n)
			return err
		})
	}))
}
