package guarantees

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// DoEnds shows that Do commits on success and rolls back on an error, a panic and Goexit.
func DoEnds[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key")
	m := f.Locks.Mutex(f.Key("do"))
	insert := func(ctx context.Context, tx Tx, id string) {
		require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES ("+id+")"))
		f.Taken(t, f.Key("do"))
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
	f.Free(t, f.Key("do"))
	require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table))
	require.ErrorContains(t, m.Do(background, nil), "nil work")
}

// SelfEnded shows that work that ends its own transaction is not committed without the lock. Of an
// unguarded client, that is what its COMMIT and BEGIN have made a transaction of.
func SelfEnded[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key")
	m := f.Locks.Mutex(f.Key("self"))
	endings := map[string][]string{
		"COMMIT": {"COMMIT"}, "ROLLBACK": {"ROLLBACK"}, "a new transaction": {"COMMIT", "BEGIN"},
		"rolled back and begun": {"ROLLBACK", "BEGIN"},
	}
	if e.Postgres { // in one query, for the handles that refuse what comes behind the end
		endings["a new transaction"] = []string{"COMMIT; BEGIN"}
		endings["rolled back and begun"] = []string{"ROLLBACK; BEGIN"}
	}
	if !e.Postgres {
		endings["DDL"] = []string{"CREATE TABLE " + f.Label + ".made (id int primary key)"}
	}
	for name, ending := range endings {
		for _, nested := range []bool{false, true} {
			before := 1
			if strings.HasPrefix(ending[0], "ROLLBACK") {
				before = 0
			}
			f.AsAdmin(t, "DELETE FROM "+table)
			work := func(ctx context.Context, tx Tx) error {
				if err := f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"); err != nil {
					return err
				}
				for _, statement := range ending {
					if err := f.Exec(ctx, tx, statement); err != nil {
						return err
					}
				}
				// Outside any transaction, PostgreSQL commits it by itself.
				_ = f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (2)")
				_ = f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (3)")
				return nil
			}
			var err error
			if nested {
				err = m.Do(background, func(ctx context.Context, tx Tx) error { return m.Do(ctx, work) })
			} else {
				err = m.Do(background, work)
			}
			require.ErrorIs(t, err, txlock.ErrLost, "%s, nested %v", name, nested)
			require.Equal(t, before, f.Total(t, "SELECT COUNT(*) FROM "+table+" WHERE id = 1"),
				"%s, nested %v", name, nested)
			if !e.Postgres || strings.Contains(ending[0], "BEGIN") {
				require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table+" WHERE id > 1"), name)
			}
			f.Free(t, f.Key("self"))
			if name == "DDL" {
				f.AsAdmin(t, "DROP TABLE "+f.Label+".made")
			}
		}
	}
	// Work with an error of its own returns that error, and still nothing is visible.
	require.ErrorIs(t, m.Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, f.Exec(ctx, tx, "ROLLBACK"))
		_ = f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (7)")
		return errWork
	}), errWork)
	// Work that ends it through the handle.
	for _, commit := range []bool{true, false} {
		err := m.Do(background, func(ctx context.Context, tx Tx) error { return f.End(ctx, tx, commit) })
		_, refuses := any(c).(testbed.Client[pgx.Tx])
		if refuses || commit && c.Name == "mysql.Open" {
			require.ErrorContains(t, err, "the transaction is that of the lock")
		} else {
			require.ErrorIs(t, err, txlock.ErrLost)
		}
	}
	if !e.Postgres {
		require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table+" WHERE id > 1"))
	}
	// The pool's connections are as before: later work commits.
	require.NoError(t, m.Do(background, func(ctx context.Context, tx Tx) error {
		return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (9)")
	}))
	require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table+" WHERE id = 9"))
}

// deadlock makes two transactions wait for each other's row, and returns the error of tx, the
// victim. InnoDB rolls back the one that wrote less, PostgreSQL the first that has waited for its
// deadlock_timeout (https://www.postgresql.org/docs/current/runtime-config-locks.html).
func deadlock[Tx any](t *testing.T, f *testbed.Fixture[Tx], ctx context.Context, tx Tx, table string) error {
	t.Helper()
	require.NoError(t, f.Exec(ctx, tx, "UPDATE "+table+" SET n = n + 1 WHERE id = 1"))
	other := f.Guest(t)
	if f.Postgres {
		require.NoError(t, f.Exec(background, other, "SET LOCAL deadlock_timeout = '1h'"))
	}
	require.NoError(t, f.Exec(background, other, "UPDATE "+table+" SET n = n + 1 WHERE id >= 2"))
	done := testbed.Go(func() error { return f.Exec(background, other, "UPDATE "+table+" SET n = n + 1 WHERE id = 1") })
	f.Waiters(t, 1)
	err := f.Exec(ctx, tx, "UPDATE "+table+" SET n = n + 1 WHERE id = 2")
	require.ErrorContains(t, err, "eadlock")
	require.NoError(t, <-done, "the victim has let its rows go")
	require.NoError(t, f.End(background, other, false))
	return err
}

func makeDeadlockTable[Tx any](t *testing.T, f *testbed.Fixture[Tx]) string {
	table := f.MakeTable(t, "id int primary key, n int", "(1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0)")
	return table
}

// SwallowedDeadlock shows that work that swallows a deadlock is not committed.
func SwallowedDeadlock[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	log := &testbed.Logbook{}
	f := testbed.NewSizedFixture(t, e, c, testbed.PoolSize, "", log.Option())
	table := makeDeadlockTable(t, f)
	for _, nested := range []bool{false, true} {
		work := func(ctx context.Context, tx Tx) error {
			_ = deadlock(t, f, ctx, tx, table) // swallowed
			_ = f.Exec(ctx, tx, "UPDATE "+table+" SET n = 100 WHERE id = 6")
			return nil
		}
		m := f.Locks.Mutex(f.Key("deadlock"))
		err := m.Do(background, func(ctx context.Context, tx Tx) error {
			if nested {
				_ = m.Do(ctx, work) // swallowed again
				return nil
			}
			return work(ctx, tx)
		})
		switch {
		case !e.Postgres:
			require.ErrorIs(t, err, txlock.ErrLost)
		case !nested:
			require.Error(t, err, "PostgreSQL cannot commit an aborted transaction")
		default:
			require.NoError(t, err, "the savepoint took the deadlock")
		}
		require.Zero(t, f.Total(t, "SELECT n FROM "+table+" WHERE id = 6"))
		f.Free(t, f.Key("deadlock"))
	}
	records := log.Records(t)
	if e.Postgres {
		require.Empty(t, records)
	} else { // of each Do
		require.Len(t, records, 2)
		for _, record := range records {
			require.Equal(t, "WARN", record["level"])
			require.Contains(t, record["msg"], "lost a lock")
		}
	}
	require.Error(t, f.Locks.Mutex(f.Key("deadlock")).Do(background, func(ctx context.Context, tx Tx) error {
		_ = deadlock(t, f, ctx, tx, table)
		_ = f.Exec(ctx, tx, "UPDATE "+table+" SET n = 100 WHERE id = 6")
		return f.End(ctx, tx, true)
	}), "it commits by itself")
	if e.Postgres || c.Name == testbed.MySQLOpened().Name { // elsewhere it is the driver's own COMMIT
		require.Zero(t, f.Total(t, "SELECT n FROM "+table+" WHERE id = 6"))
	}
}

// SwallowedError shows that work that swallows a failed statement is not reported as done when
// it is not.
func SwallowedError[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key")
	work := func(ctx context.Context, tx Tx) error {
		require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
		require.Error(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
		return nil
	}
	m := f.Locks.Mutex(f.Key("swallowed"))
	if !e.Postgres { // there a failed statement is undone alone, and the rest is committed
		require.NoError(t, m.Do(background, work))
		require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table))
		return
	}
	require.ErrorContains(t, m.Do(background, work), "rolled back")
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
	require.NoError(t, m.Do(background, func(ctx context.Context, tx Tx) error {
		require.ErrorContains(t, m.Do(ctx, work), "rolled back")
		return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (2)")
	}))
	require.Equal(t, 2, f.Total(t, "SELECT id FROM "+table))
}

// ContextEndsInWork shows that a context that ends in the work prevents the commit.
func ContextEndsInWork[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key")
	m := f.Locks.Mutex(f.Key("ctx"))
	for _, nested := range []bool{false, true} {
		ctx, cancel := context.WithCancel(background)
		work := func(ctx context.Context, tx Tx) error {
			require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
			cancel()
			return nil
		}
		require.ErrorIs(t, m.Do(ctx, func(ctx context.Context, tx Tx) error {
			if nested {
				return m.Do(ctx, work)
			}
			return work(ctx, tx)
		}), context.Canceled)
		require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
		f.Free(t, f.Key("ctx"))
	}
	// And when the session breaks at the same time, the error says both.
	var nestedErr error
	err := m.Do(background, func(outer context.Context, _ Tx) error {
		ctx, cancel := context.WithCancel(outer)
		defer cancel()
		nestedErr = m.Do(ctx, func(ctx context.Context, tx Tx) error {
			require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
			f.KillSessions(t)
			f.Transactions(t, 0)
			cancel()
			return nil
		})
		return nil
	})
	testbed.ErrorIs(t, nestedErr, context.Canceled, txlock.ErrLost)
	require.NotContains(t, nestedErr.Error(), "the work failed")
	require.ErrorIs(t, err, txlock.ErrLost)
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
}

// ReadsCurrent shows that Do reads what the last holder wrote.
func ReadsCurrent[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key, n int", "(1, 10)")
	m := f.Locks.Mutex(f.Key("current"))
	read := ""
	done := make(chan error, 1)
	require.NoError(t, m.Do(background, func(ctx context.Context, tx Tx) error {
		go func() {
			done <- m.Do(background, func(ctx context.Context, tx Tx) (err error) {
				read, err = f.Query(ctx, tx, "SELECT n FROM "+table)
				return err
			})
		}()
		f.Waiters(t, 1)
		return f.Exec(ctx, tx, "UPDATE "+table+" SET n = 9")
	}))
	require.NoError(t, <-done)
	require.Equal(t, "9", strings.TrimSpace(read))

	// A key may join a session that has already read.
	require.NoError(t, m.Do(background, func(ctx context.Context, tx Tx) error {
		if _, err := f.Query(ctx, tx, "SELECT n FROM "+table); err != nil {
			return err
		}
		f.AsAdmin(t, "UPDATE "+table+" SET n = 8")
		return f.Locks.Mutex(f.Key("joined")).Do(ctx, func(ctx context.Context, tx Tx) error {
			n, err := f.Query(ctx, tx, "SELECT n FROM "+table)
			require.Equal(t, "8", n)
			return err
		})
	}))
}
