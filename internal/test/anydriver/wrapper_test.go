package anydriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
	"github.com/ngrok/sqlmw"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/wire"
)

var background = context.Background()

// trips are the round trips of a client whose connection is open.
type trips struct{ lock, do, lockTx, nested, joined int }

var costs = map[string]trips{
	"lib pq":                {6, 6, 4, 2, 4},
	"otelsql around pgx":    {3, 4, 4, 2, 1},
	"otelsql around lib pq": {6, 6, 4, 2, 4},
	"sqlmw around pgx":      {7, 8, 5, 2, 4},
	"sqlmw around lib pq":   {6, 6, 4, 2, 4},
	"opaque around pgx":     {7, 8, 5, 2, 4},
	"opaque around lib pq":  {6, 6, 4, 2, 4},
	"pgdriver of bun":       {5, 5, 4, 2, 4},
	"otelsql around mysql":  {3, 8, 2, 2, 1},
	"sqlmw around mysql":    {3, 8, 2, 2, 1},
	"opaque around mysql":   {3, 8, 2, 2, 1},
}

// What a client costs. docs/clients.md has it in a table. The work of a Do and the transaction of
// a LockTx cost more of their own, which is not counted.
func TestRoundTrips(t *testing.T) {
	for _, e := range testbed.Engines {
		if e.Kind == servers.Postgres15 || e.Kind == servers.MariaDB {
			continue
		}
		openings, newDriver := openingsOf(e)
		for _, o := range openings {
			t.Run(e.Name+" "+o.Name, func(t *testing.T) {
				got := count(t, e, testbed.SQLOnPool(o.Name, o.Open, newDriver))
				t.Logf("%s: %+v", o.Name, got)
				require.Equal(t, costs[o.Name], got)
			})
		}
	}
}

func count[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) (counted trips) {
	proxy, err := wire.Listen(e.Address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	f := testbed.NewSizedFixture(t, e, c, 4, proxy.Addr())
	m := f.Locks.Mutex(f.Key("a"))
	of := func(call func()) int {
		least := 1 << 30
		for range 20 { // the first ones connect and prepare, some ping
			before := proxy.Bursts()
			call()
			least = min(least, proxy.Bursts()-before)
		}
		return least
	}
	counted.lock = of(func() {
		lock := testbed.Lock(t, m)
		require.NoError(t, lock.Unlock(background))
	})
	counted.do = of(func() { require.NoError(t, m.Do(background, func(context.Context, Tx) error { return nil })) })
	tx := f.Begin(t, f.DSNFor(f.Label, proxy.Addr(), nil), 0)
	counted.lockTx = of(func() { require.NoError(t, m.LockTx(background, tx)) })
	require.NoError(t, f.End(background, tx, false))
	require.NoError(t, m.Do(background, func(ctx context.Context, _ Tx) error {
		counted.nested = of(func() { require.NoError(t, m.Do(ctx, func(context.Context, Tx) error { return nil })) })
		counted.joined = of(func() {
			lock := testbed.LockIn(t, ctx, f.Locks.Mutex(f.Key("b")))
			require.NoError(t, lock.Unlock(background))
		})
		return nil
	}))
	return counted
}

// What the work sends goes through what the program has wrapped around its connections.
func TestWrapperSeesTheWork(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		below, newDriver := []driver.Driver{&mysql.MySQLDriver{}}, onMySQL
		if e.Postgres {
			below, newDriver = []driver.Driver{stdlib.GetDefaultDriver(), &pq.Driver{}}, onPostgres
		}
		for _, d := range below {
			statements := make(chan string, 1000)
			seen := interceptor{before: func(query string) { statements <- query }, after: func(string, error) {}}
			c := testbed.SQLOnPool("witnessed", func(dsn string) (*sql.DB, error) {
				return open(sqlmw.Driver(d, seen), dsn)
			}, newDriver)
			f := testbed.NewFixture(t, e, c)
			require.NoError(t, f.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
				for len(statements) > 0 {
					<-statements
				}
				if err := f.Exec(ctx, tx, "SELECT 1"); err != nil {
					return err
				}
				return testbed.ErrorOf(f.Query(ctx, tx, "SELECT 2"))
			}))
			require.Equal(t, []string{"SELECT 1", "SELECT 2"}, []string{<-statements, <-statements})
		}
	}
}
