package inspection

import (
	"database/sql"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
)

// Without a connection for a probe the holder is unknown.
func TestUnknownHolder(t *testing.T) {
	t.Parallel()
	e := testbed.Own(t, servers.MariaDB) // of which nobody else may be shown
	for _, c := range testbed.MySQLSQL {
		t.Run(c.Name, func(t *testing.T) { unknownHolder(t, e, c) })
	}
}

// limited is a Locker whose user may have one connection.
func limited(t *testing.T, f *testbed.Fixture[*sql.Tx]) *txlock.Locker[*sql.Tx] {
	t.Helper()
	user := testbed.OrdinaryUser(t, f, "", "GRANT PROCESS ON *.*")
	f.AsAdmin(t, "ALTER USER "+user.User+" WITH MAX_USER_CONNECTIONS 1")
	return visitor(t, f, user.FormatDSN())
}

func unknownHolder(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) {
	f := testbed.NewFixture(t, e, c)
	key := f.Key("unnamed")
	session, release := f.HoldInDo(t, key)
	small, p := f.Connect(t, f.DSNFor(f.Label, "", nil), 1)
	defer p.Close()
	full := txlock.New(small, txlock.WithTable(f.Table()))
	for name, locks := range map[string]*txlock.Locker[*sql.Tx]{
		"the user's connections": limited(t, f),
		"the pool's":             full,
	} {
		if p.Open == nil && locks == full {
			continue // the probes of mysql.Open have a pool of their own
		}
		require.Empty(t, inspected(t, f, locks, f.Key("free")), name)
		shown := inspected(t, f, locks, key)
		require.Len(t, shown, 1, name)
		require.Equal(t, &txlock.Session{}, shown[0].Holder, name)
		err := locks.Break(background, shown[0])
		require.ErrorContains(t, err, "break the lock on slot "+shown[0].Row+" of "+f.Table(), name)
		require.ErrorContains(t, err, "did not say by which session", name)
		require.NotErrorIs(t, err, txlock.ErrNotHeld, name)
	}
	granted := f.Queue(t, 1, key) // a waiter makes the server show the holder
	shown := inspected(t, f, full)
	require.Equal(t, session, shown[0].Holder.ID)
	require.NoError(t, release())
	require.NoError(t, (<-granted).Unlock(background))
}

func inspected(t *testing.T, f *testbed.Fixture[*sql.Tx], locks *txlock.Locker[*sql.Tx], keys ...string) (
	holdings []txlock.Holding,
) {
	t.Helper()
	f.Apart(func() {
		holdings = must.Get(locks.Inspect(background, keys...))(t)
	})
	return holdings
}

// Two clients that inspect at once do not show each other's probes.
func strangersProbe(t *testing.T, e *testbed.Engine) {
	if !e.MariaDB {
		return // MySQL needs no probes
	}
	f := innodbFixture(t, e)
	f.LookAtRows(t) // makes the table
	table := f.Label + ".few_slots"
	tx, session := outsider(t, f, "SELECT * FROM "+table+" WHERE slot = 2 FOR UPDATE")
	probe, _ := outsider(t, f, "SELECT 1")
	ended := testbed.Go(func() error {
		return f.Exec(background, probe, "SELECT /* txlock probe */ slot FROM "+table+" WHERE slot = 2 FOR UPDATE")
	})
	f.Waiters(t, 1)
	rows := rowsOf(f.LookAtRows(t), table)
	require.Len(t, rows, 1)
	require.Equal(t, session, rows[" 2"].Holder.ID)
	require.Empty(t, rows[" 2"].Waiters)
	require.NoError(t, f.End(background, tx, false))
	require.NoError(t, <-ended)
	require.NoError(t, f.End(background, probe, false))
}

// inSlot is a key of that slot among n.
func inSlot(slot, n int) (key string) {
	for i := 0; key == "" || dialects.SlotOf(key, n) != slot; i++ {
		key = strconv.Itoa(i)
	}
	return key
}

// MariaDB's views serve an old picture to whoever reads them too soon after another.
func TestCrowdedViewsMariaDB(t *testing.T) {
	t.Parallel()
	inspectsTheNewest(t, testbed.Own(t, servers.MariaDB))
}

// Another reader keeps the picture old from before the row changed hands until Inspect begins.
func inspectsTheNewest(t *testing.T, e *testbed.Engine) {
	f := innodbFixture(t, e)
	locks, _, name := slotTable(t, f, 1)
	old := func() { f.Total(t, "SELECT COUNT(*) FROM information_schema.innodb_trx") }
	take := "SELECT COUNT(*) FROM " + name + " FOR UPDATE"
	queue := func() (tx *sql.Tx, session string, granted <-chan error) {
		tx, session = outsider(t, f, "SELECT 1")
		answer := testbed.Go(func() error { return f.Exec(background, tx, take) })
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
	shown := must.Get(locks.Inspect(background))(t)
	require.Len(t, shown, 1)
	require.Equal(t, session, shown[0].Holder.ID)
	require.Len(t, shown[0].Waiters, 1)
	require.Equal(t, waiter, shown[0].Waiters[0].ID)
	require.NoError(t, f.End(background, second, false))
	require.NoError(t, <-granted)
	require.NoError(t, f.End(background, third, false))
}

// With performance_schema, and with two more settings that keep the last statements of an idle
// session, MariaDB shows the labels of its sessions. None is the default.
func TestTellingMariaDB(t *testing.T) {
	t.Parallel()
	e := testbed.Own(t, servers.MariaDB, "--performance-schema=ON",
		"--performance-schema-consumer-events-statements-current=ON",
		"--performance-schema-consumer-events-statements-history=ON")
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
	e := testbed.Own(t, servers.MySQL, "--performance-schema=OFF")
	for _, c := range testbed.MySQLSQL {
		f := testbed.NewFixture(t, e, c)
		require.NoError(t, f.Locks.Check(background))
	}
	f := testbed.NewFixture(t, e, testbed.MySQLSQL[0])
	key := f.Key("mute")
	_, release := f.HoldInDo(t, key)
	testbed.Misses(t, f.Locks.Mutex(key))
	require.ErrorContains(t, testbed.ErrorOf(f.Locks.Inspect(background, key)), "performance_schema=ON")
	require.NoError(t, release())
}
