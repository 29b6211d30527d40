package engines

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/guarantees/testbed"
)

// Leader keeps no lock on the record, and reads no old one, also where the caller's sessions begin
// a transaction with every statement, and keep its snapshot.
func TestLeaderWithoutAutocommit(t *testing.T) {
	onCallersPools(t, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		locks, db := callersPool(t, f, func(params map[string]string) { params["autocommit"] = "0" })
		onlooker := locks.Election(f.Key("election"), "onlooker")
		for range 3 {
			var number int64
			require.NoError(t, f.Locks.Election(f.Key("election"), "me").Lead(background,
				func(_ context.Context, term int64) error {
					number = term
					leader, err := onlooker.Leader(background)
					require.NoError(t, err)
					require.Equal(t, term, leader.Term)
					return nil
				}))
			_, err := onlooker.Leader(background)
			require.ErrorIs(t, err, txlock.ErrNoLeader)
			f.Transactions(t, 0)
			var n int64 // the snapshot of a transaction that the caller leaves open
			leaders := testbed.TableOf(f.Engine, "txlock_slots_leaders")
			require.NoError(t, db.QueryRow("SELECT MAX(term) FROM "+leaders).Scan(&n))
			require.GreaterOrEqual(t, n, number)
		}
	})
}
