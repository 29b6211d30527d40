package anydriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/lib/pq"
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
		below, newDriver := driver.Driver(&pq.Driver{}), onPostgres
		if !e.Postgres {
			below, newDriver = &mysql.MySQLDriver{}, onMySQL
		}
		f := testbed.NewSizedFixture(t, e, testbed.SQLOnPool("panicking", func(dsn string) (*sql.DB, error) {
			return open(panicking{opaque{below}, &armed}, dsn)
		}, newDriver), 8, e.Address())
		m := f.Locks.Mutex(f.Key("a"))
		for range 3 {
			armed.Store("for update")
			require.PanicsWithValue(t, "of a wrapper", func() { _, _ = m.Lock(background) })
			armed.Store("done_at")
			require.PanicsWithValue(t, "of a wrapper", func() { _, _, _ = f.Locks.Once(f.Key("a")).Done(background) })
		}
		lock, err := m.Lock(background)
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(background))
	}
}

type panicking struct {
	opaque
	armed *atomic.Value
}

// Open implements driver.Driver.
func (p panicking) Open(dsn string) (driver.Conn, error) {
	conn, err := p.opaque.Open(dsn)
	if err != nil {
		return nil, err
	}
	return &panickingConn{conn.(passing), p.armed}, nil
}

type panickingConn struct {
	passing
	armed *atomic.Value
}

// ExecContext implements driver.ExecerContext.
func (p *panickingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result,
	error,
) {
	p.panicIn(query)
	return p.passing.ExecContext(ctx, query, args)
}

// QueryContext implements driver.QueryerContext.
func (p *panickingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	p.panicIn(query)
	return p.passing.QueryContext(ctx, query, args)
}

func (p *panickingConn) panicIn(query string) {
	word := p.armed.Load().(string)
	if word != "" && strings.Contains(strings.ToLower(query), word) && p.armed.CompareAndSwap(word, "") {
		panic("of a wrapper")
	}
}
