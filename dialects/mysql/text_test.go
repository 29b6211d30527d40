package mysql

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// The nested locks of this library are among the work's statements, and do not spoil its
// connection.
func TestOwnStatementsLeaveSettings(t *testing.T) {
	request := dialects.Request{
		Table: "t", Column: "slot", Values: []dialects.Value{{Text: "1"}}, Slots: 4, Ours: true,
		Keys: []string{"use;temporary"},
	}
	own, err := lockSQL(request, "", time.Second, sqltext.Comment(labelOf(request), ""), "", true)
	require.NoError(t, err)
	for _, own := range []string{own, "SAVEPOINT txlock_12; " + own, "-- name: Use :exec\nSELECT 1"} {
		require.True(t, client.LeavesSettings(own), own)
	}
	for _, other := range []string{
		"SET autocommit = 1", "USE other", "/*! SET autocommit = 1 */", "SELECT 1; SET autocommit = 1", "CALL f()",
		"SAVEPOINT txlock_1; SET autocommit = 1", "/* SELECT", "-- x\n/*!50000 SET autocommit = 1, */ SELECT 1",
	} {
		require.False(t, client.LeavesSettings(other), other)
	}
}

// A nil driver is an error from each call that can return one.
func TestNilDriver(t *testing.T) {
	locks := txlock.New((*Driver)(nil))
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
}
