package engines

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// A limit on statements, as a role or a user may have one, does not end the seeding.
func TestInstallUnderALimit(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		switch e.Kind {
		case servers.Postgres18:
			t.Run(e.Name, func(t *testing.T) { installsUnder(t, e, testbed.PgxOpened(), "statement_timeout=1000") })
		case servers.MariaDB:
			t.Run(e.Name, func(t *testing.T) { installsUnder(t, e, testbed.MySQLOpened(), "max_statement_time=1") })
		}
	}
}

func installsUnder[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], limit string) {
	t.Parallel()
	f, name := testbed.NewFixtureWithTable(t, e, c)
	dsn := f.DSNFor(f.Label, "", nil)
	join := map[bool]string{true: "&", false: "?"}[strings.Contains(dsn, "?")]
	driver, pool := c.Connect(t, dsn+join+limit, 2)
	t.Cleanup(pool.Close)
	begun := time.Now()
	require.NoError(t, txlock.New(driver, txlock.WithTable(name), txlock.WithSlots(1<<20)).Install(background))
	require.Greater(t, time.Since(begun), time.Second, "the limit was not met")
}
