package anydriver

import (
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/lib/pq"
	"github.com/ngrok/sqlmw"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// The panic of a wrapper in a statement of the library goes on. It costs the pool of database/sql
// that connection, as it costs any program: its mutex stays locked.
func TestWrapperPanics(t *testing.T) {
	testbed.NoGoroutines(t, "database/sql.(*Tx).awaitDone", "github.com/lib/pq.(*conn).watchCancel.func1")
	for _, e := range testbed.Engines {
		var armed atomic.Value // a word of the statement
		armed.Store("")
		panicking := interceptor{before: func(query string) {
			word := armed.Load().(string)
			if word != "" && strings.Contains(strings.ToLower(query), word) && armed.CompareAndSwap(word, "") {
				panic("of a wrapper")
			}
		}, after: func(string, error) {}}
		below, newDriver := driver.Driver(&pq.Driver{}), onPostgres
		if !e.Postgres {
			below, newDriver = &mysql.MySQLDriver{}, onMySQL
		}
		f := testbed.NewSizedFixture(t, e, testbed.SQLOnPool("panicking", func(dsn string) (*sql.DB, error) {
			return open(sqlmw.Driver(below, panicking), dsn)
		}, newDriver), 8, e.Address())
		m := f.Locks.Mutex(f.Key("a"))
		for range 3 {
			armed.Store("for update")
			require.PanicsWithValue(t, "of a wrapper", func() { _, _ = m.Lock(background) })
			armed.Store("done_at")
			require.PanicsWithValue(t, "of a wrapper", func() { _, _, _ = f.Locks.Once(f.Key("a")).Done(background) })
		}
		lock := testbed.Lock(t, m)
		require.NoError(t, lock.Unlock(background))
	}
}
