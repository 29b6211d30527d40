package engines

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/eventually"
	"github.com/txlock/txlock/internal/guarantees/testbed"
	"github.com/txlock/txlock/internal/tier"
)

// Rows are the same ones on all nodes, however a caller names them. A Lock of two, a Do of one of
// them, and a LockTx exclude each other.
func rowsOfCallers(t *testing.T, g *cluster) {
	var database string
	require.NoError(t, g.db[0].QueryRow("SELECT DATABASE()").Scan(&database))
	first := []*txlock.Mutex[*sql.Tx]{
		g.locks[0].Rows("counters", "k", 6), g.locks[1].Rows(database+".counters", "name", "row 6"),
		g.locks[2].Rows("`counters`", "k", "06"),
	}
	var acknowledged, overtaken, inside atomic.Int64
	alone := func(err error) error {
		if err != nil {
			return err
		}
		if inside.Add(1) != 1 {
			t.Error("two inside")
		}
		time.Sleep(time.Millisecond)
		inside.Add(-1)
		return nil
	}
	var all sync.WaitGroup
	for node, m := range first {
		two := g.locks[node].Rows("counters", "name", "ROW 7", "Row 6")
		for caller := range 3 {
			all.Go(func() {
				for range tier.Pick(8, 8, 100) {
					var err error
					switch caller {
					case 0:
						err = g.byLockTx(node, m, 6)
					case 1:
						var lock *txlock.Lock
						if lock, err = two.Lock(background); alone(err) == nil {
							err = lock.Unlock(background)
						}
					default:
						err = m.Do(background, func(ctx context.Context, tx *sql.Tx) error {
							return alone(increment(ctx, tx, 6))
						})
					}
					switch {
					case err == nil && caller != 1:
						acknowledged.Add(1)
					case caller == 0 && errors.Is(err, txlock.ErrDeadlock):
						overtaken.Add(1)
					case err != nil:
						t.Errorf("node %d, caller %d: %v", node, caller, err)
					}
				}
			})
		}
	}
	all.Wait()
	t.Logf("%d acknowledged, %d were overtaken", acknowledged.Load(), overtaken.Load())
	for node := range g.locks {
		require.Equal(t, acknowledged.Load(), g.value(t, node, 6))
	}
	lock, err := first[0].Lock(background)
	require.NoError(t, err)
	for node, m := range first {
		_, err := m.TryLock(background)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		_, err = m.Within(50 * time.Millisecond).Lock(background)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		tx, err := g.db[node].Begin()
		require.NoError(t, err)
		require.ErrorIs(t, m.TryLockTx(background, tx), txlock.ErrNotAcquired)
		none := g.locks[node].Rows("counters", "k", 6, 100)
		_, err = none.TryLock(background)
		require.ErrorIs(t, err, txlock.ErrNoRow)
		require.ErrorIs(t, none.LockTx(background, tx), txlock.ErrNoRow)
		require.NoError(t, tx.Rollback())
	}
	require.NoError(t, lock.Unlock(background))
}

// A program without locks that writes a row on another node takes it from its holder, who is told.
// Who waits for what is another row by then waits on, and has the one that is meant now.
func rowsThatOthersWrite(t *testing.T, g *cluster) {
	lock, err := g.locks[0].Rows("counters", "k", 6).Lock(background)
	require.NoError(t, err)
	waits := make(chan *txlock.Lock, 1)
	go func() {
		lock, err := g.locks[0].Rows("counters", "name", "Row 6").Lock(background)
		if err != nil {
			t.Error(err)
		}
		waits <- lock
	}()
	// InnoDB shows an old picture to whoever looks again within 100 ms.
	eventually.Every(t, "the other waits for the slot", 120*time.Millisecond, func() bool {
		var waiting int
		return g.db[0].QueryRow("SELECT COUNT(*) FROM information_schema.innodb_trx "+
			"WHERE trx_state = 'LOCK WAIT'").Scan(&waiting) == nil && waiting == 1
	})
	tx, err := g.db[1].Begin()
	require.NoError(t, err)
	for _, rename := range []string{"'old' WHERE k = 6", "'Row 6' WHERE k = 5", "'Row 5' WHERE k = 6"} {
		_, err = tx.Exec("UPDATE counters SET name = " + rename)
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit())
	testbed.Receive(t, lock.Context().Done())
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	lock = testbed.Receive(t, waits)
	require.NotNil(t, lock)
	for node := range g.locks {
		_, err := g.locks[node].Rows("counters", "k", 5).TryLock(background)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
	}
	require.NoError(t, lock.Unlock(background))
}

// Orders of all nodes are combined under one key. Each has its own outcome: one that fails takes no
// other with it, also where a node has rolled its batch back for that of another.
func ordersThatAreCombined(t *testing.T, g *cluster) {
	const key, bad = 8, -1
	var acknowledged, refused, batches atomic.Int64
	var all sync.WaitGroup
	for node, locks := range g.locks {
		combined := txlock.Combine(func([]int64) *txlock.Mutex[*sql.Tx] { return locks.Mutex("combined").Retry(5) },
			func(ctx context.Context, tx *sql.Tx, orders []int64) ([]txlock.Result[int64], error) {
				batches.Add(1)
				results := make([]txlock.Result[int64], len(orders))
				for i, order := range orders {
					if order == bad {
						return nil, errors.New("a bad order")
					}
					if err := increment(ctx, tx, key); err != nil {
						return nil, err
					}
					results[i].Value = order
				}
				return results, nil
			})
		for caller := range int64(8) {
			all.Go(func() {
				for round := range int64(tier.Pick(5, 5, 50)) {
					order := 100*caller + round
					if caller == 7 {
						order = bad
					}
					got, err := combined.Do(background, order)
					switch {
					case err == nil && got == order:
						acknowledged.Add(1)
					case err != nil && order == bad && err.Error() != "":
						refused.Add(1)
					default:
						t.Errorf("node %d: order %d: %d, %v", node, order, got, err)
					}
				}
			})
		}
	}
	all.Wait()
	t.Logf("%d acknowledged, %d refused, in %d batches", acknowledged.Load(), refused.Load(), batches.Load())
	require.Less(t, batches.Load(), acknowledged.Load()+refused.Load())
	for node := range g.locks {
		require.Equal(t, acknowledged.Load(), g.value(t, node, key))
	}
}

// A claim has one holder on all nodes, and work under it is done on any of them.
func claimsOnAllNodes(t *testing.T, g *cluster) {
	const key = 9
	var last, done atomic.Int64
	var all sync.WaitGroup
	for node, locks := range g.locks {
		for caller := range 2 {
			all.Go(func() {
				claim := locks.Claim("claimed")
				for range tier.Pick(3, 3, 30) {
					taken, err := claim.Take(background, fmt.Sprintf("%d on node %d", caller, node), time.Minute)
					if err != nil {
						t.Error(err)
						return
					}
					if before := last.Swap(taken.Token()); before >= taken.Token() {
						t.Errorf("token %d behind %d", taken.Token(), before)
					}
					for _, other := range g.locks {
						if _, err := other.Claim("claimed").TryTake(background, "x", time.Minute); err == nil {
							t.Error("two have the claim")
						}
					}
					if err := taken.Do(background, func(ctx context.Context, tx *sql.Tx) error {
						return increment(ctx, tx, key)
					}); err != nil {
						t.Error(err)
					}
					done.Add(1)
					if err := taken.Release(background); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	require.Equal(t, done.Load(), g.value(t, 0, key))
}

// Candidates on all nodes lead one after the other, in terms that increase. One whose session is
// ended is told, and any node says who leads.
func leadersOnAllNodes(t *testing.T, g *cluster) {
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	var leading, last atomic.Int64
	terms := make(chan int, 1)
	var all sync.WaitGroup
	for node, locks := range g.locks {
		all.Go(func() {
			for ctx.Err() == nil {
				candidate := locks.Election("cluster", fmt.Sprint(node))
				err := candidate.Lead(ctx, func(ctx context.Context, term int64) error {
					if leading.Add(1) != 1 {
						t.Error("two lead")
					}
					defer leading.Add(-1)
					if before := last.Swap(term); before >= term {
						t.Errorf("term %d behind %d", term, before)
					}
					terms <- node
					<-ctx.Done()
					return ctx.Err()
				})
				if err != nil && !errors.Is(err, txlock.ErrLost) && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	for range tier.Pick(2, 2, 20) {
		node := testbed.Receive(t, terms)
		for _, locks := range g.locks {
			eventually.True(t, "the node knows who leads", func() bool {
				leader, err := locks.Election("cluster", "any").Leader(background)
				return err == nil && leader.Identity == fmt.Sprint(node) && leader.Term == last.Load()
			})
		}
		g.exec(t, node, fmt.Sprintf("KILL %d", g.holder(t, node)))
	}
	testbed.Receive(t, terms)
	cancel()
	all.Wait()
}
