package engines

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/guarantees/testbed"
	"github.com/txlock/txlock/internal/servers"
)

// A server whose binary log takes statements only refuses every write at READ COMMITTED.
func TestStatementLog(t *testing.T) {
	t.Parallel()
	for _, kind := range []servers.Kind{servers.MySQL, servers.MariaDB} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			server, err := servers.Start(background, kind, servers.Options{
				Settings: []string{"--log-bin=binlog", "--server-id=1", "--binlog-format=STATEMENT"},
			})
			require.NoError(t, err)
			e := testbed.Owned(t, server)
			for _, c := range testbed.MySQLSQL {
				t.Run(c.Name, func(t *testing.T) {
					f, name := testbed.NewFixtureWithTable(t, e, c, txlock.WithSlots(300), txlock.WithFencing())
					installs(t, f, name)
					table := f.MakeTable(t, "id int auto_increment primary key, n int")
					writes(t, f, table)
					reads(t, f, table)
					joins(t, f)
					shows(t, f)
					marks(t, f)
				})
			}
		})
	}
}

// installs shows that Install completes a table without waiting for the slots that are held.
func installs(t *testing.T, f *testbed.Fixture[*sql.Tx], name string) {
	t.Helper()
	require.NoError(t, f.Locks.Install(background))
	f.AsAdmin(t, "DELETE FROM "+name+" WHERE slot IN (3, 5)")
	held := heldSlot(t, f, name, 4)
	require.NoError(t, f.Locks.Install(background))
	require.NoError(t, f.End(background, held, false))
	require.Equal(t, 300, f.Total(t, "SELECT COUNT(*) FROM "+name))
	require.NoError(t, f.Locks.Check(background))
}

// writes shows that each way to work under a lock may write, and that tokens are drawn.
func writes(t *testing.T, f *testbed.Fixture[*sql.Tx], table string) {
	t.Helper()
	insert := func(ctx context.Context, tx *sql.Tx) error {
		return f.Exec(ctx, tx, "INSERT INTO "+table+" (n) VALUES (1)")
	}
	m := f.Locks.Mutex("a")
	require.NoError(t, m.Do(background, insert))
	require.NoError(t, m.TryDo(background, func(ctx context.Context, _ *sql.Tx) error { return m.Do(ctx, insert) }))
	before := int64(0)
	for range 3 {
		lock, err := m.Lock(background)
		require.NoError(t, err)
		require.Greater(t, lock.Token(), before)
		before = lock.Token()
		require.NoError(t, lock.Unlock(background))
	}
	tx := f.Guest(t)
	require.NoError(t, m.LockTx(background, tx))
	require.NoError(t, insert(background, tx))
	require.NoError(t, f.End(background, tx, true))
	committed := f.Begin(t, f.DSNFor(f.Label, "", nil), sql.LevelReadCommitted)
	require.ErrorIs(t, m.LockTx(background, committed), txlock.ErrIsolation)
	require.NoError(t, f.End(background, committed, true))
	combined := txlock.Combine(func([]int) *txlock.Mutex[*sql.Tx] { return m },
		func(ctx context.Context, tx *sql.Tx, in []int) ([]txlock.Result[int], error) {
			return make([]txlock.Result[int], len(in)), insert(ctx, tx)
		})
	_, err := combined.Do(background, 1)
	require.NoError(t, err)
	require.Equal(t, 4, f.Total(t, "SELECT COUNT(*) FROM "+table))
}

// reads shows that a Do that waited reads what the holder before it wrote, without a gap locked.
func reads(t *testing.T, f *testbed.Fixture[*sql.Tx], table string) {
	t.Helper()
	f.AsAdmin(t, "DELETE FROM "+table)
	f.AsAdmin(t, "INSERT INTO "+table+" VALUES (10, 1), (20, 1)")
	for _, m := range []*txlock.Mutex[*sql.Tx]{f.Locks.Mutex("a", "b"), f.Locks.Rows(table, "id", 10, 20)} {
		f.AsAdmin(t, "UPDATE "+table+" SET n = 1")
		goOn, done := make(chan struct{}), make(chan error, 2)
		inside := make(chan struct{}, 1)
		go func() {
			done <- m.Do(background, func(ctx context.Context, tx *sql.Tx) error {
				inside <- struct{}{}
				<-goOn
				return f.Exec(ctx, tx, "UPDATE "+table+" SET n = 2")
			})
		}()
		testbed.Receive(t, inside)
		read := make(chan string, 1)
		go func() {
			done <- m.Do(background, func(ctx context.Context, tx *sql.Tx) error {
				n, err := f.Query(ctx, tx, "SELECT SUM(n) FROM "+table)
				read <- n
				return err
			})
		}()
		f.Waiters(t, 1)
		f.AsAdmin(t, "INSERT INTO "+table+" VALUES (15, 0)") // between the rows that are held
		f.AsAdmin(t, "DELETE FROM "+table+" WHERE id = 15")
		close(goOn)
		require.NoError(t, testbed.Receive(t, done))
		require.NoError(t, testbed.Receive(t, done))
		require.Equal(t, "4", testbed.Receive(t, read))
	}
}

// joins shows that more is locked in a Lock, and not in a Do, whose work may have a snapshot.
func joins(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
	t.Helper()
	lock, err := f.Locks.Mutex("a").Lock(background)
	require.NoError(t, err)
	second, err := f.Locks.Mutex("b").Lock(lock.Context())
	require.NoError(t, err)
	require.NoError(t, second.Unlock(background))
	require.NoError(t, lock.Unlock(background))

	errSecond := errors.New("the second lock was refused")
	for range 2 {
		err = f.Locks.Mutex("a").Do(background, func(ctx context.Context, _ *sql.Tx) error {
			_, err := f.Locks.Mutex("b").Lock(ctx)
			require.ErrorIs(t, err, txlock.ErrIsolation)
			require.ErrorContains(t, err, "binlog_format")
			require.ErrorIs(t, f.Locks.Mutex("b").TryDo(ctx, nothing), txlock.ErrIsolation)
			f.Free(t, "b")
			return errSecond
		})
		require.ErrorIs(t, err, errSecond)
	}
}

// shows shows that Inspect names the holder, and that Break ends it.
func shows(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
	t.Helper()
	lock, err := f.Locks.Mutex("a").Lock(background)
	require.NoError(t, err)
	held := f.Look(t, "a")
	require.Len(t, held, 1)
	require.NotNil(t, held[0].Holder)
	require.NoError(t, f.Locks.Break(background, held[0]))
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
}

func nothing(context.Context, *sql.Tx) error { return nil }

// An Install that may create its tables and not fill them leaves none.
func TestFailedInstallLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		if e.Postgres {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			for _, c := range testbed.MySQLSQL {
				t.Run(c.Name, func(t *testing.T) { failedInstall(t, e, c) })
			}
		})
	}
}

func failedInstall(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) {
	f, name := testbed.NewFixtureWithTable(t, e, c, txlock.WithFencing())
	config := ordinaryUser(t, f)
	f.AsAdmin(t, "REVOKE INSERT ON "+f.Label+".* FROM "+config.User)
	driver, pool := c.Connect(t, config.FormatDSN(), 2)
	t.Cleanup(pool.Close)
	locks := txlock.New(driver, txlock.WithTable(name), txlock.WithFencing())
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	require.ErrorContains(t, locks.Install(background), "seed table")
	tables := "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '" + f.Label + "'"
	require.Zero(t, f.Total(t, tables))
	require.NoError(t, f.Locks.Install(background))
	const installed = 7 // the lock table, two of tokens, leaders, markers, permits, claims
	require.Equal(t, installed, f.Total(t, tables))
	f.AsAdmin(t, "DELETE FROM "+name+" WHERE slot = 7")
	require.ErrorContains(t, locks.Install(background), "seed table")
	require.Equal(t, installed, f.Total(t, tables), "what was there stays")
}

// marks shows that markers are written, read and deleted.
func marks(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
	t.Helper()
	for _, o := range []*txlock.Once[*sql.Tx]{f.Locks.Once("o"), f.Locks.Once("o").Per(24 * 365 * time.Hour)} {
		for range 2 {
			for _, want := range []bool{true, false} {
				ran, err := o.Do(background, func(context.Context, *sql.Tx) error { return nil })
				require.NoError(t, err)
				require.Equal(t, want, ran)
			}
			require.NoError(t, o.Forget(background))
		}
		dsn := f.DSNFor(f.Label, "", nil)
		tx := f.Begin(t, dsn, sql.LevelRepeatableRead)
		for _, want := range []bool{true, false} {
			first, err := o.DoTx(background, tx)
			require.NoError(t, err)
			require.Equal(t, want, first)
		}
		require.NoError(t, f.End(background, tx, true))
		tx = f.Begin(t, dsn, sql.LevelReadCommitted)
		_, err := o.DoTx(background, tx)
		require.ErrorIs(t, err, txlock.ErrIsolation)
		require.NoError(t, f.End(background, tx, false))
	}
	_, err := f.Locks.Sweep(background, 0)
	require.ErrorIs(t, err, txlock.ErrIsolation)
	if f.Kind == servers.MySQL { // and the server's log says nothing of it
		log := "SELECT COUNT(*) FROM performance_schema.error_log WHERE data LIKE "
		require.Zero(t, f.Total(t, log+"'%ON DUPLICATE%'"))
	}
}
