package anydriver

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// A held lock is renewed, and a wait begins again, on drivers other than pgx too: neither keeps its
// transaction for long, and neither is lost.
func TestLongHoldsAndWaits(t *testing.T) {
	t.Parallel()
	e := testbed.NewestPostgres()
	for _, o := range Postgres {
		if o.Name != "lib pq" && !o.Unseen {
			continue
		}
		t.Run(o.Name, func(t *testing.T) {
			t.Parallel()
			c := testbed.SQLOnPool(o.Name, o.Open, onPostgres)
			holds := testbed.NewSizedFixture(t, e, c, 4, "", txlock.WithLease(2*time.Second))
			waits := testbed.NewSizedFixture(t, e, c, 4, "", txlock.WithLease(2*time.Second))
			key := holds.Key("a")
			held := testbed.Lock(t, holds.Locks.Mutex(key))
			require.Zero(t, holds.Total(t, "SELECT COUNT(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL "+
				"AND split_part(application_name, '#', 1) = '"+holds.Label+"'"), "an idle holder has a snapshot")
			granted := waits.Waits(t, key)
			since := func(f *testbed.Fixture[*sql.Tx]) int {
				return f.Total(t, "SELECT coalesce(max(extract(epoch from xact_start) * 1000)::bigint, 0) "+
					"FROM pg_stat_activity WHERE split_part(application_name, '#', 1) = '"+f.Label+"'")
			}
			hold, wait := since(holds), since(waits)
			eventually.True(t, "the lock is renewed", func() bool { return since(holds) > hold })
			eventually.True(t, "the wait begins again", func() bool { return since(waits) > wait })
			require.NoError(t, held.Context().Err())
			holds.Taken(t, key)
			require.NoError(t, held.Unlock(background))
			testbed.Receive(t, granted)
		})
	}
}
