package anydriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/lib/pq"
	"github.com/ngrok/sqlmw"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/wire"
)

// A server that has gone is an error of each verb, also where a connection of the pool shows that
// only in use, and no other one comes.
func TestServerHasGone(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		openings, newDriver := openingsOf(e)
		for _, o := range openings {
			t.Run(e.Name+"/"+o.Name, func(t *testing.T) {
				t.Parallel()
				f := testbed.NewFixture(t, e, testbed.SQLOnPool(o.Name, o.Open, newDriver))
				m := func(l *txlock.Locker[*sql.Tx]) *txlock.Mutex[*sql.Tx] { return l.Mutex(f.Key("a")) }
				for verb, call := range map[string]func(*txlock.Locker[*sql.Tx]) error{
					"Lock": func(l *txlock.Locker[*sql.Tx]) error { _, err := m(l).Lock(background); return err },
					"Do": func(l *txlock.Locker[*sql.Tx]) error {
						return m(l).Do(background, func(context.Context, *sql.Tx) error { return nil })
					},
					"Ping": func(l *txlock.Locker[*sql.Tx]) error { return l.Ping(background) },
				} {
					proxy, err := wire.Listen(e.Address())
					require.NoError(t, err)
					driver, p := f.Connect(t, f.DSNFor(f.Label, proxy.Addr(), nil), 2)
					locks := txlock.New(driver, txlock.WithTable(e.Table()))
					lock := testbed.Lock(t, m(locks))
					require.NoError(t, lock.Unlock(background))
					require.NoError(t, proxy.Close())
					require.Error(t, call(locks), verb)
					p.Close()
				}
			})
		}
	}
}

// A held lock is renewed, and a wait begins again, on drivers other than pgx too: neither keeps its
// transaction for long, and neither is lost.
func TestLongHoldsAndWaits(t *testing.T) {
	t.Parallel()
	e := testbed.NewestPostgres()
	for _, o := range Postgres {
		if o.Name != "lib pq" && !o.Unseen {
			continue
		}
		t.Run(o.Name, func(t *testing.T) {
			t.Parallel()
			c := testbed.SQLOnPool(o.Name, o.Open, onPostgres)
			holds := testbed.NewSizedFixture(t, e, c, 4, "", txlock.WithLease(2*time.Second))
			waits := testbed.NewSizedFixture(t, e, c, 4, "", txlock.WithLease(2*time.Second))
			key := holds.Key("a")
			held := testbed.Lock(t, holds.Locks.Mutex(key))
			require.Zero(t, holds.Total(t, "SELECT COUNT(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL "+
				"AND split_part(application_name, '#', 1) = '"+holds.Label+"'"), "an idle holder has a snapshot")
			granted := waits.Waits(t, key)
			since := func(f *testbed.Fixture[*sql.Tx]) int {
				return f.Total(t, "SELECT coalesce(max(extract(epoch from xact_start) * 1000)::bigint, 0) "+
					"FROM pg_stat_activity WHERE split_part(application_name, '#', 1) = '"+f.Label+"'")
			}
			hold, wait := since(holds), since(waits)
			eventually.True(t, "the lock is renewed", func() bool { return since(holds) > hold })
			eventually.True(t, "the wait begins again", func() bool { return since(waits) > wait })
			require.NoError(t, held.Context().Err())
			holds.Taken(t, key)
			require.NoError(t, held.Unlock(background))
			testbed.Receive(t, granted)
		})
	}
}

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
