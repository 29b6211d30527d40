package engines

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/locktable"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
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

// The record is written by a statement that commits by itself. When the context ends in the middle
// of it, no connection goes back that commits every statement.
func TestRecordGivesSettingsBack(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		if e.Postgres {
			continue
		}
		for _, c := range testbed.MySQLSQL {
			t.Run(e.Name+" "+c.Name, func(t *testing.T) {
				t.Parallel()
				recordGivesBack(t, e, c)
			})
		}
	}
}

func recordGivesBack(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) {
	f := testbed.NewFixture(t, e, c)
	driver, pool := c.Connect(t, e.DSNFor(f.Label, "", nil), 1)
	t.Cleanup(pool.Close)
	found, err := locktable.Find(background, driver, e.Table())
	require.NoError(t, err)
	of, hash := found.Kinds.Leaders, testbed.HashOf(f.Key("appoint"))
	_, err = driver.Run(background, of.Rows.With(hash, ""))
	require.NoError(t, err)
	locks := txlock.New(driver, txlock.WithTable(e.Table()))
	settings := func() (text string) {
		require.NoError(t, locks.Mutex(f.Key("look")).Do(background, func(ctx context.Context, tx *sql.Tx) (err error) {
			text, err = f.Query(ctx, tx, "SELECT CONCAT_WS(' ', @@autocommit, @@innodb_lock_wait_timeout)")
			return err
		}))
		return text
	}
	before, writer := settings(), f.Guest(t)
	blocked := "UPDATE " + testbed.TableOf(e, "txlock_slots_leaders") + " SET term = 0, identity = 'x' WHERE hash = '"
	for limit := 20 * time.Microsecond; limit < 4*time.Millisecond; limit += 20 * time.Microsecond {
		if limit == 2*time.Millisecond { // from here on the statement waits
			require.NoError(t, f.Exec(background, writer, blocked+hash+"'"))
		}
		ctx, cancel := context.WithTimeout(background, limit)
		term := limit.Microseconds()
		write := of.Write.With(term, "me", hash)
		_, err := driver.Run(ctx, write)
		cancel()
		require.True(t, err != nil || limit < 2*time.Millisecond)
		require.Equal(t, before, settings(), "cut after %v", limit)
	}
	require.NoError(t, c.End(background, writer, false))
}
