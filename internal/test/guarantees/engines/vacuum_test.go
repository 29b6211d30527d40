package engines

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// Who waits for a slot does not keep VACUUM from its page, also where the table is so small that
// the server reads it without its index.
func TestVacuumUnderWaiters(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		for _, c := range testbed.PostgresPgx {
			t.Run(c.Name, func(t *testing.T) { vacuumUnderWaiters(t, e, c) })
		}
		for _, c := range testbed.PostgresSQL {
			t.Run(c.Name, func(t *testing.T) { vacuumUnderWaiters(t, e, c) })
		}
	})
}

func vacuumUnderWaiters[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewFixtureWithTable(t, e, c, txlock.WithSlots(16))
	require.NoError(t, f.Locks.Install(background))
	f.AsAdmin(t, "ANALYZE "+table)
	m := f.Locks.Mutex("a")
	for name, wait := range map[string]func(context.Context) error{
		"Lock": func(ctx context.Context) error {
			lock, err := m.Lock(ctx)
			if err != nil {
				return err
			}
			return lock.Unlock(ctx)
		},
		"Do": func(ctx context.Context) error {
			return m.Do(ctx, func(context.Context, Tx) error { return nil })
		},
	} {
		held, err := m.Lock(background)
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- wait(background) }()
		f.Waiters(t, 1)
		err = vacuum(e.Admin, table)
		require.NoError(t, held.Unlock(background))
		require.NoError(t, testbed.Receive(t, ended))
		require.NoError(t, err, "VACUUM under a waiting %s", name)
	}
}

func vacuum(admin *sql.DB, table string) error {
	ctx, cancel := context.WithTimeout(background, 10*time.Second)
	defer cancel()
	_, err := admin.ExecContext(ctx, "VACUUM (FREEZE) "+table)
	return err
}
