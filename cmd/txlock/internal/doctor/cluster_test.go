package doctor_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
)

func TestNodeOfCluster(t *testing.T) {
	for kind, cluster := range map[servers.Kind]string{
		servers.MySQL:   "in multi-primary mode",
		servers.MariaDB: `Galera cluster "txlock"`,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			node := must.Get(servers.StartNode(background, kind))(t)
			t.Cleanup(func() { require.NoError(t, node.Stop()) })
			e := must.Get(newEngine(node))(t)
			t.Cleanup(func() { _ = e.admin.Close() })
			s := newSite(t, e)
			found := find(t, s.examine(t), "cluster")
			require.Contains(t, found.Found, cluster)
			if kind == servers.MariaDB {
				require.Equal(t, doctor.Note, found.Severity)
				require.Contains(t, found.Why, "evs.suspect_timeout, here PT5S")
				return
			}
			require.Equal(t, doctor.Failure, found.Severity)
			s.execute(t, found.Fix.Text)
			require.Equal(t, doctor.Note, find(t, s.examine(t), "cluster").Severity)
		})
	}
}
