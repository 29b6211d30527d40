package engines

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// The name of a lock table may have what stands for an argument elsewhere.
func TestTableNamesLikeArguments(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		driver, pool := f.Connect(t, f.DSNFor(f.Label, "", nil), 4)
		t.Cleanup(pool.Close)
		locks := txlock.New(driver, txlock.WithTable("`"+f.Label+"`.`who? $1 {}`"), txlock.WithSlots(64))
		require.NoError(t, locks.Install(background))
		nothing := func(context.Context, *sql.Tx) error { return nil }
		claimed, err := locks.Claim("seat").TryTake(background, "me $1 ? {}", time.Minute)
		require.NoError(t, err)
		require.NoError(t, claimed.Do(background, nothing))
		require.NoError(t, claimed.Release(background))
		ran, err := locks.Once("job").Do(background, nothing)
		require.NoError(t, err)
		require.True(t, ran)
		lock, err := locks.Semaphore("api", 2).Lock(background)
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(background))
		_, err = locks.Election("e", "me").Leader(background)
		require.ErrorIs(t, err, txlock.ErrNoLeader)
	})
}
