package engines

import (
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// Golden numbers: a changed hash would let two versions of a program, in a rolling deployment, hold
// one key at once.
func TestSlotOfKeyNeverChanges(t *testing.T) {
	testbed.EachOpened(t, slotsNeverChange[pgx.Tx], slotsNeverChange[*sql.Tx])
}

func slotsNeverChange[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	golden := map[string]map[int]int{
		"sku:42": {65536: 2575, 1024: 527, 100: 15, 1: 0},
		"a":      {65536: 48707, 1024: 579, 100: 7, 1: 0},
		// the check value of CRC-32/ISO-HDLC
		"123456789":  {65536: 0xCBF43926 % 65536, 1024: 0xCBF43926 % 1024, 100: 0xCBF43926 % 100, 1: 0},
		"日本語":        {65536: 21221, 1024: 741, 100: 5, 1: 0},
		"nul\x00nul": {65536: 43026, 1024: 18, 100: 42, 1: 0},
	}
	for _, slots := range []int{65536, 1024, 100, 1} {
		f, name := testbed.NewInstalled(t, e, c, txlock.WithSlots(slots))
		for key, slotOf := range golden {
			by := heldSlot(t, f, name, slotOf[slots])
			f.Taken(t, key)
			require.NoError(t, f.End(background, by, false))
			if slots > 1 {
				by = heldSlot(t, f, name, (slotOf[slots]+1)%slots)
				f.Free(t, key)
				require.NoError(t, f.End(background, by, false))
			}
		}
	}
}

// heldSlot begins a transaction that holds a slot.
func heldSlot[Tx any](t *testing.T, f *testbed.Fixture[Tx], table string, slot int) Tx {
	t.Helper()
	tx := f.Guest(t)
	held, err := f.Query(background, tx, fmt.Sprintf("SELECT slot FROM %s WHERE slot = %d FOR UPDATE", table, slot))
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(slot), held)
	return tx
}

// A limit on statements, as a role or a user may have one, does not end the seeding.
func TestInstallUnderALimit(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		switch e.Kind {
		case servers.Postgres18:
			t.Run(e.Name, func(t *testing.T) { installsUnder(t, e, testbed.PgxOpened(), "statement_timeout=1000") })
		case servers.MariaDB:
			t.Run(e.Name, func(t *testing.T) { installsUnder(t, e, testbed.MySQLOpened(), "max_statement_time=1") })
		}
	}
}

func installsUnder[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], limit string) {
	t.Parallel()
	f, name := testbed.NewFixtureWithTable(t, e, c)
	dsn := f.DSNFor(f.Label, "", nil)
	join := map[bool]string{true: "&", false: "?"}[strings.Contains(dsn, "?")]
	driver, pool := c.Connect(t, dsn+join+limit, 2)
	t.Cleanup(pool.Close)
	begun := time.Now()
	require.NoError(t, txlock.New(driver, txlock.WithTable(name), txlock.WithSlots(1<<20)).Install(background))
	require.Greater(t, time.Since(begun), time.Second, "the limit was not met")
}

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
	f, table := testbed.NewInstalled(t, e, c, txlock.WithSlots(300), txlock.WithFencing())
	set("STATEMENT")
	f.MakeTable(t, "id int primary key")
	refusesAll(t, c, e.DSNFor(f.Label, "", nil), "set it to ROW or MIXED", txlock.ErrUnsafeEngine,
		txlock.WithTable(table))
	set("MIXED")
	require.NoError(t, f.Another(t, 2, txlock.WithTable(table)).Mutex("a").TryDo(background, idle[*sql.Tx]))
}

// An Install that may create its tables and not fill them says so. The next fills them.
func TestFailedInstallIsCompleted(t *testing.T) {
	t.Parallel()
	eachMySQL(t, func(t *testing.T, e *testbed.Engine) {
		for _, c := range testbed.MySQLSQL {
			t.Run(c.Name, func(t *testing.T) { failedInstall(t, e, c) })
		}
	})
}

func failedInstall(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) {
	f, name := testbed.NewFixtureWithTable(t, e, c, txlock.WithFencing())
	config := ordinaryUser(t, f)
	f.AsAdmin(t, "REVOKE INSERT ON "+f.Label+".* FROM "+config.User)
	locks := c.Locker(t, config.FormatDSN(), 2, txlock.WithTable(name), txlock.WithFencing())
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

// Where a pooler, or the server's limit for a user, has no second connection to give, Check says
// that nothing was checked, and soon, and not that the server does not lock. Install goes on.
func TestNoSecondConnection(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		switch e.Kind {
		case servers.Postgres18:
			for _, c := range []testbed.Client[pgx.Tx]{testbed.PgxOnPool(""), testbed.PgxOpened()} {
				t.Run(c.Name, func(t *testing.T) { noSecond(t, e, c) })
			}
			t.Run("sql.DB", func(t *testing.T) { noSecond(t, e, testbed.PostgresSQL[0]) })
		case servers.MySQL, servers.MariaDB:
			for _, c := range testbed.MySQLSQL {
				t.Run(e.Name+" "+c.Name, func(t *testing.T) { noSecondSession(t, e, c) })
			}
		}
	}
}

// noSecondSession is noSecond for a user who may have one session at a time.
func noSecondSession(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) {
	t.Parallel()
	f := testbed.NewFixture(t, e, c)
	user := ordinaryUser(t, f)
	f.AsAdmin(t, "ALTER USER "+user.User+" WITH MAX_USER_CONNECTIONS 1")
	driver, pool := c.Connect(t, user.FormatDSN(), 4)
	t.Cleanup(pool.Close)
	checkAlone(t, txlock.New(driver, txlock.WithTable(f.Label+".locks")))
}

func noSecond[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	t.Parallel()
	pooler, err := servers.StartPgBouncer(background, e.Server, "default_pool_size=1")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pooler.Stop()) })
	checkAlone(t, testbed.NewSizedFixture(t, e.Through(pooler), c, 4, "").Locks)
}

func checkAlone[Tx any](t *testing.T, locks *txlock.Locker[Tx]) {
	t.Helper()
	begun := time.Now()
	require.NoError(t, locks.Install(background))
	err := locks.Check(background)
	require.ErrorContains(t, err, "no second connection")
	require.NotErrorIs(t, err, txlock.ErrUnsafeEngine)
	took := time.Since(begun)
	t.Logf("Install and Check took %v", took)
	require.Less(t, took, 24*time.Second, "two times 6 s, and not 15")
}
