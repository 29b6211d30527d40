package engines

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// What fails through a pooler that does not track prepared statements says so, and the simple
// protocol works through it.
func TestOldPgBouncer(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		if e.Kind != servers.Postgres18 {
			continue
		}
		pooler, err := servers.StartPgBouncer(background, e.Server, "max_prepared_statements=0")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pooler.Stop()) })
		untracked(t, e.Through(pooler))
	}
}

func untracked(t *testing.T, through *testbed.Engine) {
	cycle := func(f *testbed.Fixture[pgx.Tx]) error {
		lock, err := f.Locks.Mutex(f.Key("a")).Lock(background)
		if err != nil {
			return err
		}
		return lock.Unlock(background)
	}
	do := func(f *testbed.Fixture[pgx.Tx]) error {
		return f.Locks.Mutex(f.Key("a")).Do(background, func(context.Context, pgx.Tx) error { return nil })
	}
	exec := func(f *testbed.Fixture[pgx.Tx]) error {
		_, err := f.Locks.Mutex(f.Key("a")).Exec(background, txlock.Statement{SQL: "SELECT 1", Rows: 1})
		return err
	}
	require.NoError(t, cycle(testbed.NewFixture(t, through, testbed.PgxOnPool("simple protocol"))))
	first := testbed.NewFixture(t, through, testbed.PgxOpened())
	// Another client gets the server's session in which the first has prepared its statements.
	second := testbed.NewFixture(t, through, testbed.PgxOpened())
	for range 3 {
		for _, err := range []error{cycle(second), do(second), exec(second), cycle(first), do(first), exec(first)} {
			if err != nil {
				require.ErrorContains(t, err, "max_prepared_statements")
			}
		}
		permit, err := second.Locks.Semaphore(second.Key("permits"), 2).Lock(background)
		if err == nil {
			require.NoError(t, permit.Unlock(background))
		} else {
			require.ErrorContains(t, err, "max_prepared_statements")
		}
	}
}
