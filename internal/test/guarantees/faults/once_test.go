package faults

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

func TestOnceKilledAtCommit(t *testing.T) {
	t.Parallel()
	eachOpened(t, onceKilledAtCommit[pgx.Tx], onceKilledAtCommit[*sql.Tx])
}

// A server is killed while many commit. Afterwards each marker has its work, each work its marker,
// and who was told that the work ran was told the truth. Tried again, all work is there once.
func onceKilledAtCommit[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	e, f := own(t, e, c, servers.Options{Durable: true})
	if f == nil {
		return
	}
	table := f.MakeTable(t, "n int")
	do := func(n int) (bool, error) {
		return f.Locks.Once(fmt.Sprint(n)).Do(background, func(ctx context.Context, tx Tx) error {
			return f.Exec(ctx, tx, fmt.Sprintf("INSERT INTO %s VALUES (%d)", table, n))
		})
	}
	keys := 0
	for range tier.Pick(1, 1, 100) {
		_, err := do(keys)
		require.NoError(t, err)
		first, fatal := keys, rand.Int64N(30)
		var next, ran atomic.Int64
		next.Store(int64(first))
		var workers sync.WaitGroup
		for range 8 {
			workers.Go(func() {
				for {
					did, err := do(int(next.Add(1)))
					if err != nil {
						return
					}
					if did && ran.Add(1) == fatal+1 {
						_ = e.Kill()
					}
				}
			})
		}
		workers.Wait()
		keys = int(next.Load()) + 1
		require.NoError(t, e.Restart(background))
		back(t, e)
		markers := f.Total(t, "SELECT COUNT(*) FROM "+e.Table()+"_once")
		require.Equal(t, markers, f.Total(t, "SELECT COUNT(*) FROM "+table))
		there := f.Total(t, fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE n > %d", table, first))
		require.GreaterOrEqual(t, there, int(ran.Load()))
		for n := first; n < keys; n++ {
			did, err := do(n)
			require.NoError(t, err)
			if did {
				there++
			}
		}
		require.Equal(t, keys-1-first, there)
		require.Equal(t, keys, f.Total(t, "SELECT COUNT(DISTINCT n) FROM "+table))
		require.Equal(t, keys, f.Total(t, "SELECT COUNT(*) FROM "+table))
	}
}
