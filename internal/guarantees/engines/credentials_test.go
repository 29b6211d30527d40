package engines

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/eventually"
	"github.com/txlock/txlock/internal/guarantees/testbed"
)

// Credentials may be good for one login. When the waits have all connections of the pool, the look
// for who waits for their snapshots makes one with new ones.
func TestShortLivedCredentials(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PgxOnPool(""))
		config, err := pgxpool.ParseConfig(f.DSNFor(f.Label, "", nil))
		require.NoError(t, err)
		config.MaxConns = 1
		var logins atomic.Int32
		config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
			logins.Add(1)
			return nil
		}
		pool, err := pgxpool.NewWithConfig(background, config)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		locks := txlock.New(postgres.New(pool), txlock.WithTable(e.Table()))
		key := f.Key("a")
		held, err := f.Locks.Mutex(key).Lock(background)
		require.NoError(t, err)
		t.Cleanup(func() { _ = held.Unlock(background) }) // so that a failed test ends
		waited := testbed.LockLater(locks.Mutex(key))
		eventually.True(t, "it asks for credentials again", func() bool { return logins.Load() > 1 })
		require.NoError(t, held.Unlock(background))
		require.NoError(t, testbed.Receive(t, waited))
	})
}
