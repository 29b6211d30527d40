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
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/tier"
)

// While rows of the work are open, nothing can be sent. Each nested call says so, and what the
// session holds is held.
func TestOpenRows(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		table := f.MakeTable(t, "id int primary key")
		nested := f.Locks.Mutex(f.Key("nested"))
		require.NoError(t, f.Locks.Mutex(f.Key("outer")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
			rows, err := tx.QueryContext(ctx, "SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3")
			require.NoError(t, err)
			require.True(t, rows.Next())
			for name, call := range map[string]func() error{
				"Do":    func() error { return nested.Do(ctx, idle[*sql.Tx]) },
				"Lock":  func() error { _, err := nested.Lock(ctx); return err },
				"TryDo": func() error { return nested.TryDo(ctx, idle[*sql.Tx]) },
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
			require.NoError(t, nested.Do(ctx, idle[*sql.Tx]))
			f.Taken(t, f.Key("outer"), f.Key("nested"))
			_, err = tx.ExecContext(ctx, "INSERT INTO "+table+" VALUES (1)")
			return err
		}))
		require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table))
	})
}

// What a look at a marker reads is committed, whatever isolation level work has left in its
// session.
func TestOnceBehindOtherIsolation(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		locks := f.Another(t, 1)
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
				holder := testbed.Lock(t, several(others.Locks, name))
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

// A goroutine that the work has left behind with the transaction's handle disturbs neither the
// commit nor who has the connection next.
func TestHandleLeftBehind(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		if e.Postgres {
			continue
		}
		for _, c := range testbed.MySQLSQL {
			t.Run(e.Name+"/"+c.Name, func(t *testing.T) {
				t.Parallel()
				f := testbed.NewSizedFixture(t, e, c, 1, "")
				rolledBackBehind(t, f)
				statementBehind(t, f)
			})
		}
	}
}

// rolledBackBehind rolls back while the Do commits: one of them is first.
func rolledBackBehind(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
	table := f.MakeTable(t, "id int primary key")
	committed := 0
	for i := range 100 {
		rolledBack := make(chan struct{})
		err := f.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO "+table+" VALUES (?)", i)
			go func() {
				defer close(rolledBack)
				_ = tx.Rollback()
			}()
			return err
		})
		if err == nil {
			committed++
		} else {
			require.ErrorIs(t, err, txlock.ErrLost)
		}
		<-rolledBack
	}
	require.Equal(t, committed, f.Total(t, "SELECT COUNT(*) FROM "+table))
}

// statementBehind is a statement that the server still runs when the work returns: the commit
// comes behind it.
func statementBehind(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
	const sleeping = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'DO SLEEP(0.4%' AND db = "
	for range 3 {
		done := make(chan error, 1)
		require.NoError(t, f.Locks.Mutex(f.Key("a")).Do(background, func(_ context.Context, tx *sql.Tx) error {
			go func() {
				_, err := tx.ExecContext(background, "DO SLEEP(0.4)")
				done <- err
			}()
			eventually.True(t, "the statement runs", func() bool { return f.Total(t, sleeping+"'"+f.Label+"'") == 1 })
			return nil
		}))
		require.NoError(t, <-done)
	}
}
