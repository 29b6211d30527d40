package engines

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// A server whose binary log takes statements only is refused by every call, until it takes rows.
func TestStatementLog(t *testing.T) {
	t.Parallel()
	eachOwnMySQL(t, refusesStatements, "--log-bin=binlog", "--server-id=1", "--binlog-format=STATEMENT")
}

func refusesStatements(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) {
	set := func(format string) {
		_, err := e.Admin.Exec("SET GLOBAL binlog_format = '" + format + "'")
		require.NoError(t, err)
	}
	set("ROW")
	f, table := testbed.NewFixtureWithTable(t, e, c, txlock.WithSlots(300), txlock.WithFencing())
	require.NoError(t, f.Locks.Install(background))
	set("STATEMENT")
	anew := func() *txlock.Locker[*sql.Tx] {
		driver, pool := c.Connect(t, e.DSNFor(f.Label, "", nil), 2)
		t.Cleanup(pool.Close)
		return txlock.New(driver, txlock.WithTable(table))
	}
	locks := anew()
	m := locks.Mutex("a")
	never := func(context.Context, *sql.Tx) error { t.Error("it ran"); return nil }
	tx := f.Begin(t, e.DSNFor(f.Label, "", nil), sql.LevelRepeatableRead)
	for call, err := range map[string]func() error{
		"Lock":    func() error { _, err := m.Lock(background); return err },
		"TryLock": func() error { _, err := m.Shared().TryLock(background); return err },
		"Do":      func() error { return m.Do(background, never) },
		"LockTx":  func() error { return m.LockTx(background, tx) },
		"Exec":    func() error { _, err := m.Exec(background, txlock.Statement{SQL: "SELECT 1"}); return err },
		"Once":    func() error { _, err := locks.Once("a").Do(background, never); return err },
		"Install": func() error { return locks.Install(background) },
		"Check":   func() error { return locks.Check(background) },
		"Ping":    func() error { return locks.Ping(background) },
	} {
		failed := err()
		require.ErrorIs(t, failed, txlock.ErrUnsafeEngine, call)
		require.ErrorContains(t, failed, "set it to ROW or MIXED", call)
	}
	require.NoError(t, f.End(background, tx, false))
	set("MIXED")
	require.NoError(t, anew().Mutex("a").TryDo(background, func(context.Context, *sql.Tx) error { return nil }))
}

// An Install that may create its tables and not fill them says so. The next fills them.
func TestFailedInstallIsCompleted(t *testing.T) {
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
	require.ErrorContains(t, locks.Install(background), "INSERT command denied")
	tables := "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '" + f.Label + "'"
	_, err := locks.Mutex("a").Lock(background)
	require.ErrorIs(t, err, txlock.ErrNotInstalled)
	require.NoError(t, f.Locks.Install(background))
	const installed = 7 // the lock table, two of tokens, leaders, markers, permits, claims
	require.Equal(t, installed, f.Total(t, tables))
	f.AsAdmin(t, "DELETE FROM "+name+" WHERE slot = 7")
	require.ErrorContains(t, locks.Install(background), "INSERT command denied")
	require.Equal(t, installed, f.Total(t, tables), "what was there stays")
	held := heldSlot(t, f, name, 8)
	require.NoError(t, f.Locks.Install(background), "it waits for no slot that is held")
	require.NoError(t, f.End(background, held, false))
}
