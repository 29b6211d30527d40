package anydriver

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
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
