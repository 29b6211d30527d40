package servers

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNodes(t *testing.T) {
	for kind, members := range map[Kind]string{
		MySQL: `SELECT COUNT(*) FROM performance_schema.replication_group_members
			WHERE MEMBER_STATE = 'ONLINE' AND @@group_replication_single_primary_mode = 'OFF'
			AND NOT @@super_read_only`,
		MariaDB: "SELECT COUNT(*) FROM information_schema.global_status WHERE variable_name = 'wsrep_ready' AND " +
			"variable_value = 'ON'",
	} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			node, err := StartNode(context.Background(), kind)
			require.NoError(t, err)
			defer node.Stop()
			require.Equal(t, 1, number(t, open(t, node), members))
		})
	}
	_, err := StartNode(context.Background(), Postgres18)
	require.ErrorContains(t, err, "not supported")
}
