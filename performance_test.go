package txlock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/servers"
)

// MariaDB shows what its sessions say of themselves where performance_schema is on, and the last
// statement of one that is idle where that keeps them. Neither is its default.
func TestTellingMariaDB(t *testing.T) {
	server, err := servers.Start(background, servers.MariaDB, servers.Options{Settings: []string{
		"--performance-schema=ON", "--performance-schema-consumer-events-statements-current=ON",
	}})
	require.NoError(t, err)
	e := owned(t, server)
	e.tells = true
	for _, c := range mysqlSQL {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, e, c)
			require.NotEmpty(t, f.variable(t, f.key("variable")))
			t.Run("shows", func(t *testing.T) { inspectShows(t, e, c) })
			t.Run("since", func(t *testing.T) { inspectSince(t, e, c) })
			t.Run("nested", func(t *testing.T) { inspectNested(t, e, c) })
			t.Run("tx", func(t *testing.T) { inspectTx(t, e, c) })
		})
	}
}

// MySQL shows no locks where performance_schema is off. Locks are locks all the same.
func TestMuteMySQL(t *testing.T) {
	server, err := servers.Start(background, servers.MySQL,
		servers.Options{Settings: []string{"--performance-schema=OFF"}})
	require.NoError(t, err)
	e := owned(t, server)
	for _, c := range mysqlSQL {
		f := newFixture(t, e, c)
		require.NoError(t, f.locks.Check(background))
		require.Empty(t, f.variable(t, f.key("variable")), "nobody could read it")
	}
	f := newFixture(t, e, mysqlSQL[0])
	key := f.key("mute")
	_, release := f.holdInDo(t, key)
	_, err = f.locks.Mutex(key).TryLock(background)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	_, err = f.locks.Inspect(background, key)
	require.ErrorContains(t, err, "performance_schema=ON")
	require.NoError(t, release())
}

// variable is what a session says of itself while it holds a key.
func (f *fixture[Tx]) variable(t *testing.T, key string) (label string) {
	t.Helper()
	require.NoError(t, f.locks.Mutex(key).Do(background, func(ctx context.Context, tx Tx) (err error) {
		label, err = f.query(ctx, tx, "SELECT COALESCE(@txlock, '')")
		return err
	}))
	return label
}
