package txlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/servers"
)

// A node of a cluster all of whose nodes take writes is refused: locks that are held there exclude
// nobody on the others.
func TestNodeOfCluster(t *testing.T) {
	for _, kind := range []servers.Kind{servers.MySQL, servers.MariaDB} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			node, err := servers.StartNode(background, kind)
			require.NoError(t, err)
			e := owned(t, node)
			f := newParallelFixture(t, e, mysqlSQL[0], 2, "") // which installs
			err = f.locks.Check(background)
			require.ErrorIs(t, err, txlock.ErrUnsafeEngine)
			require.ErrorContains(t, err, "one node only")

			if kind == servers.MySQL {
				f.admitted(t, "SELECT group_replication_switch_to_single_primary_mode()") // the fix of txlock doctor
				require.NoError(t, f.locks.Check(background))
				driver, p := f.connect(t, f.dsn(f.label, "", nil), 1)
				defer p.close()
				fencing := txlock.New(driver, txlock.WithTable(f.label+".fencing"), txlock.WithFencing())
				require.NoError(t, fencing.Install(background))
				_, err = fencing.Mutex(f.key("token")).Lock(background)
				require.ErrorContains(t, err, "without WithFencing")
				lock, err := f.locks.Mutex(f.key("no token")).Lock(background)
				require.NoError(t, err)
				require.NoError(t, lock.Unlock(background))
			}
		})
	}
}

// A server that could be a member of a group, and is in none, is no node.
func TestNodeOfNoCluster(t *testing.T) {
	server, err := servers.Start(background, servers.MySQL, servers.Options{Settings: []string{
		"--plugin-load-add=group_replication.so", "--loose-group-replication-single-primary-mode=OFF",
		"--loose-group-replication-start-on-boot=OFF",
	}})
	require.NoError(t, err)
	f := newFixture(t, owned(t, server), mysqlSQL[0])
	require.NoError(t, f.locks.Check(background))
}
