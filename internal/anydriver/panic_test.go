package anydriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/guarantees/testbed"
)

// The panic of a wrapper in a statement of the library goes on. It costs the pool of database/sql
// that connection, as it costs any program: its mutex stays locked.
func TestWrapperPanics(t *testing.T) {
	testbed.NoGoroutines(t, "database/sql.(*Tx).awaitDone", "github.com/lib/pq.(*conn).watchCancel.func1")
	for _, e := range testbed.Engines {
		if !e.Postgres {
			continue
		}
		var armed atomic.Bool
		f := testbed.NewSizedFixture(t, e, testbed.SQLOnPool("panicking", func(dsn string) (*sql.DB, error) {
			return open(panicking{opaque{&pq.Driver{}}, &armed}, dsn)
		}, onPostgres), 5, e.Address())
		m := f.Locks.Mutex(f.Key("a"))
		for range 3 {
			armed.Store(true)
			require.PanicsWithValue(t, "of a wrapper", func() { _, _ = m.Lock(background) })
		}
		lock, err := m.Lock(background)
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(background))
	}
}

type panicking struct {
	opaque
	armed *atomic.Bool
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
	armed *atomic.Bool
}

// QueryContext implements driver.QueryerContext.
func (p *panickingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if strings.Contains(query, "for update") && p.armed.CompareAndSwap(true, false) {
		panic("of a wrapper")
	}
	return p.passing.QueryContext(ctx, query, args)
}
