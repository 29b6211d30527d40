package engines

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/tier"
)

// While rows of the work are open, nothing can be sent. Each nested call says so, and what the
// session holds is held.
func TestOpenRows(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		table := f.MakeTable(t, "id int primary key")
		nothing := func(context.Context, *sql.Tx) error { return nil }
		nested := f.Locks.Mutex(f.Key("nested"))
		require.NoError(t, f.Locks.Mutex(f.Key("outer")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
			rows, err := tx.QueryContext(ctx, "SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3")
			require.NoError(t, err)
			require.True(t, rows.Next())
			for name, call := range map[string]func() error{
				"Do":    func() error { return nested.Do(ctx, nothing) },
				"Lock":  func() error { _, err := nested.Lock(ctx); return err },
				"TryDo": func() error { return nested.TryDo(ctx, nothing) },
				"Exec": func() error {
					_, err := nested.Exec(ctx, txlock.Statement{SQL: "DELETE FROM " + table})
					return err
				},
			} {
				err := call()
				require.ErrorContains(t, err, "rows of a query of the work are still open", name)
				require.NotErrorIs(t, err, txlock.ErrLost, name)
			}
			require.NoError(t, rows.Close())
			require.NoError(t, nested.Do(ctx, nothing))
			f.Taken(t, f.Key("outer"), f.Key("nested"))
			_, err = tx.ExecContext(ctx, "INSERT INTO "+table+" VALUES (1)")
			return err
		}))
		require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table))
	})
}

// A session that the server has ended before the COMMIT was sent has committed nothing, and the
// error does not say that nobody knows.
func TestEndedBeforeCommit(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		table := f.MakeTable(t, "id int primary key")
		for range 10 {
			err := f.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO "+table+" VALUES (1)")
				f.KillSession(t, tx)
				f.Transactions(t, 0)
				return err
			})
			require.ErrorIs(t, err, txlock.ErrLost)
			require.NotErrorIs(t, err, txlock.ErrDeadlock)
			require.NotContains(t, err.Error(), "unknown")
		}
		require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
	})
}

// What a look at a marker reads is committed, whatever isolation level work has left in its
// session.
func TestOnceBehindOtherIsolation(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		driver, pool := f.Connect(t, f.DSNFor(f.Label, "", nil), 1)
		t.Cleanup(pool.Close)
		locks := txlock.New(driver, txlock.WithTable(f.Table()))
		t.Cleanup(func() { require.NoError(t, locks.Close()) })
		level := "transaction_isolation"
		if f.MariaDB {
			level = "tx_isolation"
		}
		f.AsAdmin(t, "CREATE PROCEDURE "+f.Label+".dirties() SET SESSION "+level+" = 'READ-UNCOMMITTED'")
		f.AsAdmin(t, "CREATE FUNCTION "+f.Label+".dirty() RETURNS INT NO SQL BEGIN SET SESSION "+level+
			" = 'READ-UNCOMMITTED'; RETURN 1; END")
		for _, change := range []string{
			"SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED", "CALL dirties()", "SELECT dirty()",
		} {
			key, tx := f.OnceKey("once:", change), f.Guest(t)
			first, err := f.Locks.Once(key).DoTx(background, tx)
			require.NoError(t, err)
			require.True(t, first)
			require.NoError(t, locks.Mutex(f.Key("work")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
				_, err := f.Query(ctx, tx, "SELECT 1")
				return errors.Join(err, f.Exec(ctx, tx, change))
			}))
			_, done, err := locks.Once(key).Done(background)
			require.NoError(t, err)
			require.False(t, done, change)
			require.NoError(t, f.End(background, tx, true))
		}
	})
}

// An Exec locks what a Do locks: rows by a column that is not unique, too.
func TestExecOfSeveralRowsOfOneValue(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		table := f.MakeTable(t, "id int primary key, k int, n int not null, index (k)")
		f.AsAdmin(t, "INSERT INTO "+table+" VALUES (1, 7, 0), (2, 7, 0), (3, 8, 0)")
		add := txlock.Statement{SQL: "UPDATE " + table + " SET n = n + ? WHERE k = ?", Args: []any{1, 7}, Rows: 2}
		affected, err := f.Locks.Rows(table, "k", 7).Exec(background, add)
		require.NoError(t, err)
		require.Equal(t, []int64{2}, affected)
		_, err = f.Locks.Rows(table, "k", 9).Exec(background, add)
		require.ErrorIs(t, err, txlock.ErrNoRow)
		require.Equal(t, 2, f.Total(t, "SELECT SUM(n) FROM "+table))
	})
}

// A cancel that races with the grant of a nested lock costs the outer Do nothing, and no time: what
// was taken has no statement behind it that a KILL QUERY could leave without an answer.
func TestCancelRacesInTheWorkOfADo(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		rounds := tier.Pick(40, 150, 1000)
		others := testbed.NewSizedFixture(t, f.Engine, f.Client, 2, "")
		several := func(locks *txlock.Locker[*sql.Tx], name string) *txlock.Mutex[*sql.Tx] {
			return locks.Mutex(f.Key(name), f.Key(name+"'"))
		}
		require.NoError(t, f.Locks.Mutex(f.Key("outer")).Do(background, func(outer context.Context, _ *sql.Tx) error {
			for round := range rounds {
				name := "race" + strings.Repeat("'", 2*round)
				holder, err := several(others.Locks, name).Lock(background)
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(outer)
				begun := time.Now()
				var together sync.WaitGroup
				together.Go(func() {
					time.Sleep(rand.N(time.Millisecond))
					cancel()
				})
				together.Go(func() {
					time.Sleep(rand.N(time.Millisecond))
					assert.NoError(t, holder.Unlock(background))
				})
				if _, err := several(f.Locks, name).Lock(ctx); err != nil {
					require.ErrorIs(t, err, context.Canceled)
					require.NotErrorIs(t, err, txlock.ErrLost)
				}
				together.Wait()
				require.Less(t, time.Since(begun), 5*time.Second)
			}
			return nil
		}))
	})
}
