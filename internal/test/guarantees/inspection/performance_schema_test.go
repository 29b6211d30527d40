package inspection

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// With performance_schema, and with two more settings that keep the last statements of an idle
// session, MariaDB shows the labels of its sessions. None is the default.
func TestTellingMariaDB(t *testing.T) {
	t.Parallel()
	server, err := servers.Start(background, servers.MariaDB, servers.Options{Settings: []string{
		"--performance-schema=ON", "--performance-schema-consumer-events-statements-current=ON",
		"--performance-schema-consumer-events-statements-history=ON",
	}})
	require.NoError(t, err)
	e := testbed.Owned(t, server)
	e.Tells = true
	for _, c := range testbed.MySQLSQL {
		t.Run(c.Name, func(t *testing.T) {
			t.Run("shows", func(t *testing.T) { guarantees.InspectShows(t, e, c) })
			t.Run("nested", func(t *testing.T) { guarantees.InspectNested(t, e, c) })
			t.Run("tx", func(t *testing.T) { guarantees.InspectTx(t, e, c) })
		})
	}
}

// Without performance_schema MySQL shows no locks. Locks work all the same.
func TestMuteMySQL(t *testing.T) {
	t.Parallel()
	server, err := servers.Start(background, servers.MySQL,
		servers.Options{Settings: []string{"--performance-schema=OFF"}})
	require.NoError(t, err)
	e := testbed.Owned(t, server)
	for _, c := range testbed.MySQLSQL {
		f := testbed.NewFixture(t, e, c)
		require.NoError(t, f.Locks.Check(background))
	}
	f := testbed.NewFixture(t, e, testbed.MySQLSQL[0])
	key := f.Key("mute")
	_, release := f.HoldInDo(t, key)
	_, err = f.Locks.Mutex(key).TryLock(background)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	_, err = f.Locks.Inspect(background, key)
	require.ErrorContains(t, err, "performance_schema=ON")
	require.NoError(t, release())
}
