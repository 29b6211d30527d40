package engines

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/guarantees/testbed"
	"github.com/txlock/txlock/internal/servers"
)

// A pooler that does not track prepared statements is named in the error, and the simple protocol
// works through it.
func TestOldPgBouncer(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		if e.Kind != servers.Postgres18 {
			continue
		}
		pooler, err := servers.StartPgBouncer(background, e.Server, "max_prepared_statements=0")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pooler.Stop()) })
		through := e.Through(pooler)
		cycle := func(f *testbed.Fixture[pgx.Tx]) error {
			lock, err := f.Locks.Mutex(f.Key("a")).Lock(background)
			if err != nil {
				return err
			}
			return lock.Unlock(background)
		}
		require.NoError(t, cycle(testbed.NewFixture(t, through, testbed.PgxOpened())))
		// Another client gets the server's session in which the first has prepared its statements.
		second := testbed.NewFixture(t, through, testbed.PgxOpened())
		require.ErrorContains(t, cycle(second), "max_prepared_statements")
		for range 3 {
			m := second.Locks.Mutex(second.Key("a"))
			if err := m.Do(background, func(context.Context, pgx.Tx) error { return nil }); err != nil {
				require.ErrorContains(t, err, "max_prepared_statements")
			}
			permit, err := second.Locks.Semaphore(second.Key("permits"), 2).Lock(background)
			if err == nil {
				require.NoError(t, permit.Unlock(background))
			} else {
				require.ErrorContains(t, err, "max_prepared_statements")
			}
		}
		require.NoError(t, cycle(testbed.NewFixture(t, through, testbed.PgxOnPool("simple protocol"))))
	}
}
