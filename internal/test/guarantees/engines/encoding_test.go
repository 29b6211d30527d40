package engines

import (
	"database/sql"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

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
