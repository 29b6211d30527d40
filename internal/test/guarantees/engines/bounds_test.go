package engines

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// Within bounds the wait for all keys of an Exec together. PostgreSQL bounds that for each.
func TestExecOfSeveralKeysIsBounded(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		const limit = 4 * time.Second
		f := testbed.NewFixture(t, e, testbed.PgxOpened())
		keys := []string{f.Key("a"), f.Key("b")} // in the order of the queue
		if testbed.SlotOf(keys[0], 65536) > testbed.SlotOf(keys[1], 65536) {
			keys[0], keys[1] = keys[1], keys[0]
		}
		first, second := testbed.Lock(t, f.Locks.Mutex(keys[0])), testbed.Lock(t, f.Locks.Mutex(keys[1]))
		begun := time.Now()
		done := testbed.Go(func() error {
			_, err := f.Locks.Mutex(keys...).Within(limit).Exec(background, txlock.Statement{SQL: "SELECT 1"})
			return err
		})
		f.Waiters(t, 1)
		<-time.After(limit*3/4 - time.Since(begun)) // a wait for the second key begins late
		testbed.Unlock(t, first)
		require.ErrorIs(t, testbed.Receive(t, done), context.DeadlineExceeded)
		require.Less(t, time.Since(begun), limit*3/2)
		testbed.Unlock(t, second)
	})
}

// A long lock_timeout of the session's keeps no wait from beginning again, so that its snapshot
// goes.
func TestLongLimitOnWaits(t *testing.T) {
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PgxOpened())
		held := testbed.Lock(t, f.Locks.Mutex(f.Key("k")))
		waits := f.AnotherBy(t, f.DSNFor(f.Label, "", url.Values{"lock_timeout": {"1h"}}), 2,
			txlock.WithLease(2*time.Second))
		done := testbed.LockLater(waits.Mutex(f.Key("k")))
		f.Waiters(t, 1)
		since := func() int {
			return f.Total(t, "SELECT coalesce(max(extract(epoch from xact_start) * 1000)::bigint, 0) "+
				"FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND "+
				"split_part(application_name, '#', 1) = '"+f.Label+"'")
		}
		first := since()
		eventually.Every(t, "the wait begins again", testbed.PollEvery, func() bool { return since() > first })
		testbed.Unlock(t, held)
		require.NoError(t, testbed.Receive(t, done))
	})
}

// The caller's limit on the wait of a LockTx is longer than that of the session, which holds where
// the caller has none.
func TestLimitOnWaitsOfLockTx(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL[:1], func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		held := testbed.Lock(t, f.Locks.Mutex(f.Key("k")))
		impatient := f.DSNFor(f.Label, "", url.Values{"innodb_lock_wait_timeout": {"1"}})
		tx := f.Begin(t, impatient, sql.LevelReadCommitted)
		m := f.Locks.Mutex(f.Key("k"))
		require.ErrorIs(t, m.LockTx(background, tx), txlock.ErrNotAcquired)
		done := testbed.Go(func() error { return m.Within(2*time.Minute).LockTx(background, tx) })
		f.Waiters(t, 1)
		select {
		case err := <-done:
			require.NoError(t, err, "it ends before its time")
		case <-time.After(3 * time.Second): // nothing must happen
		}
		testbed.Unlock(t, held)
		require.NoError(t, testbed.Receive(t, done))
		require.NoError(t, f.End(background, tx, false))
	})
}

// A leader whose work has ended does not lead again because its release is not confirmed.
func TestSilentResignation(t *testing.T) {
	testbed.EachOpened(t, silentResignation[pgx.Tx], silentResignation[*sql.Tx])
}

func silentResignation[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, proxy := testbed.Proxied(t, e, c, 4)
	ctx, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	done, terms := errors.New("done"), 0
	err := f.Locks.Election(f.Key("e"), "me").Lead(ctx, func(context.Context, int64) error {
		if terms++; terms == 1 {
			t.Cleanup(proxy.Hold())
		}
		return done
	})
	require.ErrorIs(t, err, done)
	require.Equal(t, 1, terms)
}
