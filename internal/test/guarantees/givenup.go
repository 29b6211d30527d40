package guarantees

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// GivenUp shows that the key of a Do, or of an Exec, that is given up is free at once, though a
// statement of its work runs at the server: also where the pool has no second connection.
func GivenUp[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	for _, size := range []int{1, 4} {
		for how, run := range map[string]func(context.Context, *testbed.Fixture[Tx], string) error{
			"Do": func(ctx context.Context, own *testbed.Fixture[Tx], long string) error {
				return own.Locks.Mutex(f.Key("a")).Do(ctx, func(ctx context.Context, tx Tx) error {
					return own.Exec(ctx, tx, long)
				})
			},
			"nested Do": func(ctx context.Context, own *testbed.Fixture[Tx], long string) error {
				return own.Locks.Mutex(f.Key("a")).Do(ctx, func(ctx context.Context, _ Tx) error {
					return own.Locks.Mutex(f.Key("b")).Do(ctx, func(ctx context.Context, tx Tx) error {
						return own.Exec(ctx, tx, long)
					})
				})
			},
			"Exec": func(ctx context.Context, own *testbed.Fixture[Tx], long string) error {
				_, err := own.Locks.Mutex(f.Key("a")).Exec(ctx, txlock.Statement{SQL: long})
				return err
			},
		} {
			own := testbed.NewSizedFixture(t, e, c, size, "")
			ctx, cancel := context.WithCancel(background)
			givenUp(t, f, own, how+", and its context ends", cancel,
				func(long string) error { return run(ctx, own, long) })
			if how == "Do" {
				own = testbed.NewSizedFixture(t, e, c, size, "")
				givenUp(t, f, own, "and its Locker is closed", func() { _ = own.Locks.Close() },
					func(long string) error { return run(background, own, long) })
			}
		}
	}
}

// givenUp begins a call whose statement runs for minutes, tells it to stop, and locks its key.
func givenUp[Tx any](t *testing.T, f, own *testbed.Fixture[Tx], how string, stop func(), call func(long string) error) {
	t.Helper()
	// A sleep would not do: MySQL ends that when the client is gone.
	mark := "given_up_" + own.Label
	long := "SELECT '" + mark + "', BENCHMARK(4000000000, SHA2(RAND(), 256))"
	runs := "SELECT COUNT(*) FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND " +
		"info LIKE '%" + mark + "%'"
	if f.Postgres {
		long = "SELECT COUNT(*) AS " + mark + " FROM generate_series(1, 4000000000)"
		runs = "SELECT COUNT(*) FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid() AND " +
			"query LIKE '%" + mark + "%'"
	}
	done := make(chan error, 1)
	go func() { done <- call(long) }()
	eventually.True(t, "the statement runs", func() bool { return own.Total(t, runs) > 0 })
	begun := time.Now()
	go stop()
	lock, err := f.Locks.Mutex(f.Key("a")).Within(20 * time.Second).Lock(background)
	require.NoError(t, err, how)
	require.Less(t, time.Since(begun), 5*time.Second, how) // 1 s, on a machine that has the time
	require.NoError(t, lock.Unlock(background))
	require.Error(t, testbed.Receive(t, done), how)
	eventually.True(t, "the statement ends", func() bool { return own.Total(t, runs) == 0 })
}
