package engines

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/guarantees/testbed"
	"github.com/txlock/txlock/internal/servers"
)

// A marker that is not committed says nothing, also where the caller's sessions would read it: the
// work may still fail.
func TestOnceAtReadUncommitted(t *testing.T) {
	onCallersPools(t, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		name := "transaction_isolation"
		if f.Kind == servers.MariaDB {
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
