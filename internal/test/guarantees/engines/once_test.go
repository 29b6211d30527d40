package engines

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// A marker that is not committed says nothing, also where the caller's sessions would read it: the
// work may still fail.
func TestOnceAtReadUncommitted(t *testing.T) {
	onCallersPools(t, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		name := "transaction_isolation"
		if f.MariaDB {
			name = "tx_isolation"
		}
		locks, _ := callersPool(t, f, func(params map[string]string) { params[name] = "'READ-UNCOMMITTED'" })
		once := locks.Once(f.Key("k"))
		failed := errors.New("failed")
		_, err := f.Locks.Once(f.Key("k")).Do(background, func(context.Context, *sql.Tx) error {
			_, done, err := once.Done(background)
			require.NoError(t, err)
			require.False(t, done)
			return failed
		})
		require.ErrorIs(t, err, failed)
		ran, err := once.Do(background, func(context.Context, *sql.Tx) error { return nil })
		require.NoError(t, err)
		require.True(t, ran)
		_, done, err := once.Done(background)
		require.NoError(t, err)
		require.True(t, done)
	})
}

// A wait for the table of the markers, which DDL has, ends as any other.
func TestOnceBesideDDL(t *testing.T) {
	onCallersPools(t, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		f, table := testbed.NewFixtureWithTable(t, f.Engine, f.Client, txlock.WithSlots(64))
		require.NoError(t, f.Locks.Install(background))
		once := f.Locks.Once("k")
		nothing := func(context.Context, *sql.Tx) error { return nil }
		_, err := once.Do(background, nothing)
		require.NoError(t, err)
		ddl, err := f.Admin.Conn(background)
		require.NoError(t, err)
		defer ddl.Close()
		_, err = ddl.ExecContext(background, "LOCK TABLES "+table+"_once WRITE")
		require.NoError(t, err)
		_, err = once.Within(50*time.Millisecond).Do(background, nothing)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = ddl.ExecContext(background, "UNLOCK TABLES")
		require.NoError(t, err)
	})
}
