package engines

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/guarantees/testbed"
)

// Locks work where the server refuses what it would otherwise only warn of.
func TestStrictMode(t *testing.T) {
	onCallersPools(t, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		locks, _ := callersPool(t, f, func(params map[string]string) { params["sql_mode"] = "'TRADITIONAL'" })
		nothing := func(context.Context, *sql.Tx) error { return nil }
		require.NoError(t, locks.Mutex(f.Key("k")).Do(background, nothing))
		require.NoError(t, locks.Mutex(f.Key("k")).Shared().Do(background, nothing))
		require.NoError(t, locks.Semaphore(f.Key("k"), 2).Do(background, nothing))
		ran, err := locks.Once(f.Key("k")).Do(background, nothing)
		require.NoError(t, err)
		require.True(t, ran)
	})
}
