package engines

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// In a replication group where all members take writes, a member is refused: its locks exclude
// nobody on the others.
func TestNodeOfCluster(t *testing.T) {
	t.Parallel()
	node, err := servers.StartNode(background, servers.MySQL)
	require.NoError(t, err)
	e := testbed.Owned(t, node)
	driver, p := testbed.MySQLSQL[0].Connect(t, node.DSN, 2)
	defer p.Close()
	locks := txlock.New(driver)
	refused := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, txlock.ErrUnsafeEngine)
		require.ErrorContains(t, err, "one node only")
	}
	refused(locks.Install(background))
	refused(locks.Check(background))
	_, err = locks.Mutex("k").TryLock(background)
	refused(err)

	e.AsAdmin(t, "SELECT group_replication_switch_to_single_primary_mode()") // the fix of txlock doctor
	f := testbed.NewSizedFixture(t, e, testbed.MySQLSQL[0], 2, "", txlock.WithFencing())
	require.NoError(t, f.Locks.Install(background))
	require.NoError(t, f.Locks.Check(background))
	lock, err := f.Locks.Mutex(f.Key("token")).Lock(background)
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(background))
	require.NoError(t, f.Locks.Election("e", "me").Lead(background,
		func(_ context.Context, term int64) error {
			require.Greater(t, term, lock.Token())
			return nil
		}))
	e.AsAdmin(t, "DROP TABLE "+e.Table()+"_runs") // as an earlier version has made it
	_, err = e.Admin.Exec("CREATE TABLE " + e.Table() + "_runs (server BIGINT UNSIGNED NOT NULL, " +
		"epoch BIGINT NOT NULL PRIMARY KEY, start BIGINT UNSIGNED NOT NULL) ENGINE=MEMORY")
	require.NoError(t, err)
	_, err = f.Locks.Mutex(f.Key("token")).Lock(background)
	require.ErrorContains(t, err, "3098")
	require.NoError(t, f.Locks.Install(background))
	again, err := f.Locks.Mutex(f.Key("token")).Lock(background)
	require.NoError(t, err)
	require.Greater(t, again.Token(), lock.Token())
	require.NoError(t, again.Unlock(background))
	e.AsAdmin(t, "SELECT group_replication_switch_to_multi_primary_mode()")
	refused(f.Locks.Check(background))
}

// A server that has the group plugin, and is in no group, is no node.
func TestNodeOfNoCluster(t *testing.T) {
	t.Parallel()
	server, err := servers.Start(background, servers.MySQL, servers.Options{Settings: []string{
		"--plugin-load-add=group_replication.so", "--loose-group-replication-single-primary-mode=OFF",
		"--loose-group-replication-start-on-boot=OFF",
	}})
	require.NoError(t, err)
	f := testbed.NewFixture(t, testbed.Owned(t, server), testbed.MySQLSQL[0])
	require.NoError(t, f.Locks.Check(background))
}
