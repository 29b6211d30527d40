package inspection

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// MariaDB's views serve an old picture to whoever reads them too soon after another.
func TestCrowdedViewsMariaDB(t *testing.T) {
	t.Parallel()
	server, err := servers.Start(background, servers.MariaDB, servers.Options{})
	require.NoError(t, err)
	e := testbed.Owned(t, server)
	t.Run("an old picture of another reader is not shown", func(t *testing.T) { inspectsTheNewest(t, e) })
}

// Another reader keeps the picture old from before the row changed hands until Inspect begins.
func inspectsTheNewest(t *testing.T, e *testbed.Engine) {
	f := innodbFixture(t, e)
	locks, _, name := slotTable(t, f, 1)
	old := func() { f.Total(t, "SELECT COUNT(*) FROM information_schema.innodb_trx") }
	take := "SELECT COUNT(*) FROM " + name + " FOR UPDATE"
	queue := func() (tx *sql.Tx, session string, granted <-chan error) {
		tx, session = outsider(t, f, "SELECT 1")
		answer := make(chan error, 1)
		go func() { answer <- f.Exec(background, tx, take) }()
		eventually.Every(t, "it waits", time.Millisecond, func() bool {
			old()
			return f.Total(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE ID = "+session+
				" AND INFO = '"+take+"'") == 1
		})
		return tx, session, answer
	}
	first, _ := outsider(t, f, take)
	second, session, granted := queue()
	f.Waiters(t, 1) // the picture has the first as the holder
	require.NoError(t, f.End(background, first, false))
	require.NoError(t, <-granted)
	third, waiter, granted := queue()
	shown, err := locks.Inspect(background)
	require.NoError(t, err)
	require.Len(t, shown, 1)
	require.Equal(t, session, shown[0].Holder.ID)
	require.Len(t, shown[0].Waiters, 1)
	require.Equal(t, waiter, shown[0].Waiters[0].ID)
	require.NoError(t, f.End(background, second, false))
	require.NoError(t, <-granted)
	require.NoError(t, f.End(background, third, false))
}
