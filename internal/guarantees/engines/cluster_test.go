package engines

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/guarantees/testbed"
	"github.com/txlock/txlock/internal/servers"
)

// In a cluster where all nodes take writes, a node is refused: its locks exclude nobody on the
// others.
func TestNodeOfCluster(t *testing.T) {
	t.Parallel()
	for _, kind := range []servers.Kind{servers.MySQL, servers.MariaDB} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			node, err := servers.StartNode(background, kind)
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

			if kind == servers.MySQL {
				e.AsAdmin(t, "SELECT group_replication_switch_to_single_primary_mode()") // the fix of txlock doctor
				f := testbed.NewSizedFixture(t, e, testbed.MySQLSQL[0], 2, "")           // which installs
				require.NoError(t, f.Locks.Check(background))
				driver, p := f.Connect(t, f.DSNFor(f.Label, "", nil), 1)
				defer p.Close()
				fencing := txlock.New(driver, txlock.WithTable(f.Label+".fencing"), txlock.WithFencing())
				require.NoError(t, fencing.Install(background))
				_, err = fencing.Mutex(f.Key("token")).Lock(background)
				require.ErrorContains(t, err, "without WithFencing")
				lock, err := f.Locks.Mutex(f.Key("no token")).Lock(background)
				require.NoError(t, err)
				require.NoError(t, lock.Unlock(background))
				e.AsAdmin(t, "SELECT group_replication_switch_to_multi_primary_mode()")
				refused(f.Locks.Check(background))
			}
		})
	}
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
