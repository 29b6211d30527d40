package engines

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// encodings are those of databases that are not UTF-8, with a name that each can keep.
var encodings = map[string]string{
	"SQL_ASCII": "Jörg", "LATIN1": "Jörg", "WIN1252": "Jörg", "EUC_JP": "日本",
}

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
// gets an error from its first call, whichever that is, and nothing has changed.
func TestEncodings(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		for encoding, name := range encodings {
			t.Run(encoding, func(t *testing.T) {
				t.Parallel()
				dsn := databaseIn(t, e, encoding)
				opened := speaksUTF8(t, testbed.PgxOpened(), dsn, name)
				tx := testbed.PgxOpened().Begin(t, dsn, sql.LevelReadCommitted)
				require.ErrorContains(t, opened.Mutex("a").LockTx(background, tx), "client_encoding")
				_, err := tx.Exec(background, "SELECT 1")
				require.NoError(t, err)
				for _, c := range testbed.PostgresPgx[:2] {
					t.Run(c.Name, func(t *testing.T) { refusesSettings(t, c, dsn, "client_encoding") })
				}
				for _, c := range append(testbed.PostgresSQL, testbed.SQLFromPool()) {
					t.Run(c.Name, func(t *testing.T) { refusesSettings(t, c, dsn, "client_encoding") })
				}
				speaksUTF8(t, testbed.PostgresSQL[0], dsn+"&client_encoding=UTF8", name)
			})
		}
		t.Run("spelled", func(t *testing.T) { spelledSettings(t, e, "client_encoding=UNICODE") })
	})
	t.Run("PgBouncer", func(t *testing.T) {
		t.Parallel()
		e := testbed.PgBouncer(t) // it sends back what the client wrote
		for _, settings := range []string{
			"client_encoding=utf8", "client_encoding=utf-8", "client_encoding=Utf_8&standard_conforming_strings=ON",
			"standard_conforming_strings=true", "standard_conforming_strings=1",
		} {
			t.Run(settings, func(t *testing.T) { spelledSettings(t, e, settings) })
		}
	})
}

// spelledSettings shows that another spelling of a setting that serves does.
func spelledSettings(t *testing.T, e *testbed.Engine, settings string) {
	t.Parallel()
	dsn := databaseIn(t, e, "UTF8") + "&" + settings
	speaksUTF8(t, testbed.PgxOnPool(""), dsn, "Jörg")
	for _, c := range append(testbed.PostgresSQL, testbed.SQLFromPool()) {
		speaksUTF8(t, c, dsn, "Jörg")
	}
}

// speaksUTF8 shows that a name comes back as it was.
func speaksUTF8[Tx any](t *testing.T, c testbed.Client[Tx], dsn, name string) *txlock.Locker[Tx] {
	t.Helper()
	driver, pool := c.Connect(t, dsn, 4)
	locks := txlock.New(driver)
	t.Cleanup(func() { require.NoError(t, locks.Close()); pool.Close() })
	require.NoError(t, locks.Install(background))
	require.NoError(t, locks.Check(background))
	claim := locks.Claim("seat " + c.Name)
	held, err := claim.TryTake(background, name, time.Minute)
	require.NoError(t, err)
	require.Equal(t, name, held.By())
	_, err = claim.TryTake(background, "other", time.Minute)
	require.ErrorContains(t, err, name)
	for _, key := range []string{name, "日本", "Jörg", `back\slash`} {
		lock, err := locks.Mutex(key).Lock(background)
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(background))
	}
	return locks
}

// refusesSettings shows that each verb, on a connection with a setting that does not serve, is an
// error that names it, and changes nothing.
func refusesSettings[Tx any](t *testing.T, c testbed.Client[Tx], dsn, setting string) {
	verbs := map[string]func(locks *txlock.Locker[Tx], tx Tx) error{
		"Install": func(locks *txlock.Locker[Tx], _ Tx) error { return locks.Install(background) },
		"Ping":    func(locks *txlock.Locker[Tx], _ Tx) error { return locks.Ping(background) },
		"Check":   func(locks *txlock.Locker[Tx], _ Tx) error { return locks.Check(background) },
		"Inspect": func(locks *txlock.Locker[Tx], _ Tx) error { _, err := locks.Inspect(background); return err },
		"Lock": func(locks *txlock.Locker[Tx], _ Tx) error {
			_, err := locks.Mutex("a").Lock(background)
			return err
		},
		"TryTake": func(locks *txlock.Locker[Tx], _ Tx) error {
			_, err := locks.Claim("other").TryTake(background, "me", time.Minute)
			return err
		},
		"Do": func(locks *txlock.Locker[Tx], _ Tx) error {
			return locks.Mutex("a").Do(background, func(context.Context, Tx) error { panic("it works") })
		},
		"LockTx":    func(locks *txlock.Locker[Tx], tx Tx) error { return locks.Mutex("a").LockTx(background, tx) },
		"TryLockTx": func(locks *txlock.Locker[Tx], tx Tx) error { return locks.Mutex("a").TryLockTx(background, tx) },
		"rows": func(locks *txlock.Locker[Tx], tx Tx) error {
			return locks.Rows("pg_database", "oid", 1).LockTx(background, tx)
		},
		"DoTx": func(locks *txlock.Locker[Tx], tx Tx) error {
			_, err := locks.Once("a").DoTx(background, tx)
			return err
		},
	}
	for verb, call := range verbs {
		driver, pool := c.Connect(t, dsn, 4)
		tx := c.Begin(t, dsn, sql.LevelReadCommitted)
		err := call(txlock.New(driver), tx)
		require.ErrorContains(t, err, setting, verb)
		require.NotErrorIs(t, err, txlock.ErrLost, verb)
		require.NoError(t, c.Exec(background, tx, "SELECT 1"), verb)
		require.NoError(t, c.End(background, tx, false))
		pool.Close()
	}
}

// So it is with standard_conforming_strings = off.
func TestConformingStrings(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		const setting = "standard_conforming_strings"
		dsn := databaseIn(t, e, "UTF8") + "&" + setting + "=off"
		speaksUTF8(t, testbed.PgxOpened(), dsn, "Jörg")
		for _, c := range testbed.PostgresPgx[:2] {
			t.Run(c.Name, func(t *testing.T) { refusesSettings(t, c, dsn, setting) })
		}
		for _, c := range append(testbed.PostgresSQL, testbed.SQLFromPool()) {
			t.Run(c.Name, func(t *testing.T) { refusesSettings(t, c, dsn, setting) })
		}
	})
}

// noUndo is a connection of pgx's that fails to roll back to a savepoint, once it is told to.
type noUndo struct {
	*stdlibConn
	fails *atomic.Bool
}

func (c noUndo) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.fails.Load() && strings.Contains(query, "rollback to") {
		return nil, errNoUndo
	}
	return c.stdlibConn.ExecContext(ctx, query, args)
}

func (c noUndo) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.fails.Load() && strings.Contains(query, "rollback to") {
		return nil, errNoUndo
	}
	return c.stdlibConn.QueryContext(ctx, query, args)
}

var errNoUndo = errors.New("it does not roll back")

// A caller's transaction that cannot be rolled back to a savepoint is an error of its own, and no
// answer.
func TestFailedUndo(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f, table := testbed.NewFixtureWithTable(t, e, testbed.PostgresSQL[0], txlock.WithSlots(64))
		require.NoError(t, f.Locks.Install(background))
		f.AsAdmin(t, "DROP TABLE "+table+"_once")
		held, err := f.Locks.Mutex(f.Key("held")).Lock(background)
		require.NoError(t, err)
		var fails atomic.Bool
		db := wrappedPool(t, f, func(conn *stdlib.Conn) driver.Conn { return noUndo{conn, &fails} })
		locks := txlock.New(postgres.NewSQL(db), txlock.WithTable(table))
		t.Cleanup(func() { require.NoError(t, locks.Close()) })
		tx, err := db.Begin()
		require.NoError(t, err)
		require.NoError(t, locks.Mutex(f.Key("free")).LockTx(background, tx)) // which tries out the driver
		require.NoError(t, tx.Rollback())
		fails.Store(true)
		for verb, call := range map[string]func(tx *sql.Tx) error{
			"DoTx": func(tx *sql.Tx) error {
				_, err := locks.Once(f.Key("other")).DoTx(background, tx)
				return err
			},
			"TryLockTx": func(tx *sql.Tx) error { // of two keys, one of which it may have got
				return locks.Mutex(f.Key("held"), f.Key("free")).TryLockTx(background, tx)
			},
		} {
			tx, err := db.Begin()
			require.NoError(t, err)
			err = call(tx)
			require.ErrorIs(t, err, txlock.ErrLost, verb)
			require.ErrorContains(t, err, errNoUndo.Error(), verb)
			require.NotErrorIs(t, err, txlock.ErrNotAcquired, verb)
			require.NoError(t, tx.Rollback())
		}
		require.NoError(t, held.Unlock(background))
	})
}
