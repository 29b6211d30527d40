package engines

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// Locks work where the server refuses what it would otherwise only warn of, and where it reads NOT
// in another way.
func TestStrictMode(t *testing.T) {
	onCallersPools(t, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		for _, mode := range []string{"TRADITIONAL", "HIGH_NOT_PRECEDENCE"} {
			locks, _ := callersPool(t, f, func(params map[string]string) { params["sql_mode"] = "'" + mode + "'" })
			nothing := func(context.Context, *sql.Tx) error { return nil }
			require.NoError(t, locks.Mutex(f.Key("k")).Do(background, nothing))
			require.NoError(t, locks.Mutex(f.Key("k")).Shared().Do(background, nothing))
			require.NoError(t, locks.Semaphore(f.Key("k"), 2).Do(background, nothing))
			// The first also asks for the format of the binary log.
			for _, key := range []string{f.Key(mode), f.Key(mode + " again")} {
				for _, want := range []bool{true, false} {
					worked := false
					ran, err := locks.Once(key).Do(background, func(context.Context, *sql.Tx) error {
						worked = true
						return nil
					})
					require.NoError(t, err)
					require.Equal(t, want, ran)
					require.Equal(t, want, worked)
				}
			}
		}
	})
}
