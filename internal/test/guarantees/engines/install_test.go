package engines

import (
	"database/sql"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

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
	eachOwnMySQL(t, refusesStatements, "--log-bin=binlog", "--server-id=1", "--binlog-format=STATEMENT")
}

func refusesStatements(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) {
	set := func(format string) { database.Exec(t, e.Admin, "SET GLOBAL binlog_format = '"+format+"'") }
	set("ROW")
	f, table := testbed.NewInstalled(t, e, c, txlock.WithSlots(300), txlock.WithFencing())
	set("STATEMENT")
	f.MakeTable(t, "id int primary key")
	refusesAll(t, c, e.DSNFor(f.Label, "", nil), "set it to ROW or MIXED", txlock.ErrUnsafeEngine,
		txlock.WithTable(table))
	set("MIXED")
	require.NoError(t, f.Another(t, 2, txlock.WithTable(table)).Mutex("a").TryDo(background, idle[*sql.Tx]))
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
	user := testbed.OrdinaryUser(t, f, "")
	f.AsAdmin(t, "ALTER USER "+user.User+" WITH MAX_USER_CONNECTIONS 1")
	checkAlone(t, c.Locker(t, user.FormatDSN(), 4, txlock.WithTable(f.Label+".locks")))
}

func noSecond[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	t.Parallel()
	checkAlone(t, testbed.NewSizedFixture(t, e.BehindPgBouncer(t, "default_pool_size=1"), c, 4, "").Locks)
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

// encodings are those of databases that are not UTF-8, with a name that each can keep.
var encodings = map[string]string{"SQL_ASCII": "Jörg", "LATIN1": "Jörg", "WIN1252": "Jörg", "EUC_JP": "日本"}

// databaseIn makes a database in that encoding.
func databaseIn(t *testing.T, e *testbed.Engine, encoding string) (dsn string) {
	t.Helper()
	name := testbed.NewLabel()
	e.AsAdmin(t, "CREATE DATABASE "+name+" ENCODING '"+encoding+"' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	t.Cleanup(func() { e.AsAdmin(t, "DROP DATABASE "+name+" WITH (FORCE)") })
	u, err := url.Parse(e.DSNFor(name, "", nil))
	require.NoError(t, err)
	u.Path = "/" + name
	return u.String()
}

// postgres.Open speaks UTF-8 with a database in any encoding. A pool of the caller's that does not
// gets an error from its first call, whichever that is, and nothing has changed. So it is with
// standard_conforming_strings = off.
func TestEncodings(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		for encoding, name := range encodings {
			t.Run(encoding, func(t *testing.T) {
				t.Parallel()
				dsn := databaseIn(t, e, encoding)
				opened := speaksUTF8(t, testbed.PgxOpened(), dsn, name)
				tx := testbed.PgxOpened().Begin(t, dsn, sql.LevelReadCommitted)
				require.ErrorContains(t, opened.Mutex("a").LockTx(background, tx), "client_encoding")
				require.NoError(t, testbed.ErrorOf(tx.Exec(background, "SELECT 1")))
				refusesSetting(t, dsn, "client_encoding")
				speaksUTF8(t, testbed.PostgresSQL[0], dsn+"&client_encoding=UTF8", name)
			})
		}
		t.Run("standard_conforming_strings", func(t *testing.T) {
			t.Parallel()
			dsn := databaseIn(t, e, "UTF8") + "&standard_conforming_strings=off"
			speaksUTF8(t, testbed.PgxOpened(), dsn, "Jörg")
			refusesSetting(t, dsn, "standard_conforming_strings")
		})
	})
	t.Run("PgBouncer", func(t *testing.T) {
		t.Parallel()
		// It sends back what the client wrote: another spelling of what serves.
		dsn := databaseIn(t, testbed.PgBouncer(t), "UTF8") + "&client_encoding=Utf_8&standard_conforming_strings=ON"
		speaksUTF8(t, testbed.PgxOnPool(""), dsn, "Jörg")
		for _, c := range append(testbed.PostgresSQL, testbed.SQLFromPool()) {
			speaksUTF8(t, c, dsn, "Jörg")
		}
	})
}

// refusesSetting shows that pools of the caller's whose connections have a setting that does not
// serve are told so.
func refusesSetting(t *testing.T, dsn, setting string) {
	for _, c := range testbed.PostgresPgx[:2] {
		t.Run(c.Name, func(t *testing.T) { refusesAll(t, c, dsn, setting, nil) })
	}
	for _, c := range append(testbed.PostgresSQL, testbed.SQLFromPool()) {
		t.Run(c.Name, func(t *testing.T) { refusesAll(t, c, dsn, setting, nil) })
	}
}

// speaksUTF8 shows that a name comes back as it was.
func speaksUTF8[Tx any](t *testing.T, c testbed.Client[Tx], dsn, name string) *txlock.Locker[Tx] {
	t.Helper()
	locks := c.Locker(t, dsn, 4)
	require.NoError(t, locks.Install(background))
	require.NoError(t, locks.Check(background))
	claim := locks.Claim("seat " + c.Name)
	held := testbed.Take(t, claim, name, time.Minute)
	require.Equal(t, name, held.By())
	require.ErrorContains(t, testbed.ErrorOf(claim.TryTake(background, "other", time.Minute)), name)
	for _, key := range []string{name, "日本", "Jörg", `back\slash`} {
		testbed.Unlock(t, testbed.Lock(t, locks.Mutex(key)))
	}
	return locks
}
