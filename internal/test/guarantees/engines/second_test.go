package engines

import (
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// Where a pooler, or the server's limit for a user, has no second connection to give, Check says
// that nothing was checked, and soon, and not that the server does not lock. Install goes on.
func TestNoSecondConnection(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		switch e.Kind {
		case servers.Postgres18:
			for _, c := range []testbed.Client[pgx.Tx]{testbed.PgxOnPool(""), testbed.PgxOpened()} {
				t.Run(c.Name, func(t *testing.T) { noSecond(t, e, c) })
			}
			t.Run("sql.DB", func(t *testing.T) { noSecond(t, e, testbed.PostgresSQL[0]) })
		case servers.MySQL, servers.MariaDB:
			for _, c := range testbed.MySQLSQL {
				t.Run(e.Name+" "+c.Name, func(t *testing.T) { noSecondSession(t, e, c) })
			}
		}
	}
}

// noSecondSession is noSecond for a user who may have one session at a time.
func noSecondSession(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) {
	t.Parallel()
	f := testbed.NewFixture(t, e, c)
	user := ordinaryUser(t, f)
	f.AsAdmin(t, "ALTER USER "+user.User+" WITH MAX_USER_CONNECTIONS 1")
	driver, pool := c.Connect(t, user.FormatDSN(), 4)
	t.Cleanup(pool.Close)
	checkAlone(t, txlock.New(driver, txlock.WithTable(f.Label+".locks")))
}

func noSecond[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	t.Parallel()
	pooler, err := servers.StartPgBouncer(background, e.Server, "default_pool_size=1")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pooler.Stop()) })
	checkAlone(t, testbed.NewSizedFixture(t, e.Through(pooler), c, 4, "").Locks)
}

func checkAlone[Tx any](t *testing.T, locks *txlock.Locker[Tx]) {
	t.Helper()
	begun := time.Now()
	require.NoError(t, locks.Install(background))
	err := locks.Check(background)
	require.ErrorContains(t, err, "no second connection")
	require.NotErrorIs(t, err, txlock.ErrUnsafeEngine)
	took := time.Since(begun)
	t.Logf("Install and Check took %v", took)
	require.Less(t, took, 24*time.Second, "two times 6 s, and not 15")
}
