package engines

import (
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
		require.ErrorContains(t, cycle(testbed.NewFixture(t, through, testbed.PgxOpened())), "max_prepared_statements")
		require.NoError(t, cycle(testbed.NewFixture(t, through, testbed.PgxOnPool("simple protocol"))))
	}
}
