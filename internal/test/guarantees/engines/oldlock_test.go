package engines

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// What docs/coming-from.md says: work whose first statement takes a lock of the server's own and
// programs that hold that lock exclude each other, until the transaction of the work has ended.
func TestOldLockInTheWork(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		oldLockInTheWork[pgx.Tx](t, e, testbed.PgxOpened())
	})
	eachMySQL(t, func(t *testing.T, e *testbed.Engine) {
		oldLockInTheWork[*sql.Tx](t, e, testbed.MySQLOpened())
	})
}

func oldLockInTheWork[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	old := "'" + f.Label + "'"
	takes, try, give := "SELECT GET_LOCK(%s, 60)", "SELECT GET_LOCK(%s, 0)", "SELECT RELEASE_LOCK(%s)"
	waiting := "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '" + f.Label +
		"' AND state = 'User lock'"
	if e.Postgres {
		waiting = "SELECT COUNT(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND " +
			"split_part(application_name, '#', 1) = '" + f.Label + "'"
		old = fmt.Sprint(crc32.ChecksumIEEE([]byte(f.Label)))
		takes, try = "SELECT pg_advisory_xact_lock(%s)", "SELECT pg_try_advisory_lock(%s)::int"
		give = "SELECT pg_advisory_unlock(%s)::int"
	}
	program, err := f.Admin.Conn(background)
	require.NoError(t, err)
	defer program.Close()
	ask := func(function string) (granted bool) {
		t.Helper()
		require.NoError(t, program.QueryRowContext(background, fmt.Sprintf(function, old)).Scan(&granted))
		return granted
	}
	m, fails := f.Locks.Mutex(f.Key("report")), errors.New("fails")
	for _, end := range []error{nil, fails} {
		require.ErrorIs(t, m.Do(background, func(ctx context.Context, tx Tx) error {
			_, err := f.Query(ctx, tx, fmt.Sprintf(takes, old))
			require.NoError(t, err)
			require.False(t, ask(try), "the old program has got it")
			return end
		}), end)
		// On MySQL and MariaDB the name ends with the connection; the server may notice that later.
		eventually.True(t, "the old lock is free", func() bool { return ask(try) })
		worked := make(chan error, 1)
		go func() {
			worked <- m.Do(background, func(ctx context.Context, tx Tx) error {
				_, err := f.Query(ctx, tx, fmt.Sprintf(takes, old))
				return err
			})
		}()
		eventually.Every(t, "the work waits for the old program", testbed.PollEvery, func() bool {
			return f.Total(t, waiting) == 1
		})
		require.Empty(t, worked)
		require.True(t, ask(give))
		require.NoError(t, <-worked)
	}
}
