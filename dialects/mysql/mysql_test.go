package mysql

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
)

// A driver without a database is an error from each call that can return one.
func TestNilDriver(t *testing.T) {
	for _, none := range []*Driver{nil, {}, New(nil)} {
		refused(t, txlock.New(none))
	}
}

func refused(t *testing.T, locks *txlock.Locker[*sql.Tx]) {
	t.Helper()
	for name, call := range map[string]func() error{
		"Check":   func() error { return locks.Check(t.Context()) },
		"Ping":    func() error { return locks.Ping(t.Context()) },
		"Install": func() error { return locks.Install(t.Context()) },
		"Lock": func() error {
			_, err := locks.Mutex("k").Lock(t.Context())
			return err
		},
		"LockTx": func() error { return locks.Mutex("k").LockTx(t.Context(), nil) },
	} {
		require.ErrorContains(t, call(), "nil database", name)
	}
	require.NoError(t, locks.Close())
}
