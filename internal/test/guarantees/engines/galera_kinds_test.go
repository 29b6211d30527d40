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
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/tier"
)

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

// Callers on all nodes draw tokens at once, each for a key of its own. No node is so busy that
// another gets none.
func tokensOfManyKeys(t *testing.T, g *cluster) {
	var drawn sync.Map
	var all sync.WaitGroup
	for node, locks := range g.locks {
		for caller := range 12 {
			all.Go(func() {
				m, last := locks.Mutex(fmt.Sprintf("of %d on %d", caller, node)), int64(0)
				for range tier.Pick(40, 40, 100) {
					lock, err := m.Lock(background)
					if err != nil {
						t.Error(err)
						return
					}
					if _, twice := drawn.LoadOrStore(lock.Token(), true); twice || lock.Token() <= last {
						t.Errorf("token %d behind %d", lock.Token(), last)
					}
					last = lock.Token()
					if err := lock.Unlock(background); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
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
