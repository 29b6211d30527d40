package servers

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHAProxyLeadsToThePrimary(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Postgres(), MariaDB} { // MySQL takes long to start
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			pair := startPair(t, kind, true)
			proxy, err := StartHAProxy(context.Background(), pair)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, proxy.Stop()) })
			t.Log(proxy.Origin)
			db := open(t, proxy)
			do(t, open(t, pair.Primary()), "CREATE TABLE t (n INT PRIMARY KEY)")
			do(t, db, "INSERT INTO t VALUES (1)")
			require.NoError(t, pair.Switch(context.Background(), Planned))
			// Until the check has failed, new connections lead to the former primary.
			require.Eventually(t, func() bool {
				_, err := db.Exec("INSERT INTO t VALUES (2)")
				return err == nil
			}, time.Minute, 10*time.Millisecond)
			require.Equal(t, 2, number(t, open(t, pair.Primary()), "SELECT COUNT(*) FROM t"))
			require.NoError(t, pair.Primary().Kill())
			require.Error(t, ping(db))
			require.NoError(t, pair.Promote(context.Background()))
			back(t, db)
			require.Equal(t, 2, number(t, db, "SELECT COUNT(*) FROM t"))
		})
	}
}
