package faults

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

func TestClaimKilledAtCommit(t *testing.T) {
	t.Parallel()
	eachOpened(t, claimKilledAtCommit[pgx.Tx], claimKilledAtCommit[*sql.Tx])
}

// A server is killed while many take claims and release every other one. Afterwards each that was
// acknowledged is there, with its token, and each release. What was not acknowledged can be asked
// for again by the same holder. The next token of each is
// larger.
func claimKilledAtCommit[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	e, f := own(t, e, c, servers.Options{Durable: true})
	if f == nil {
		return
	}
	take := func(n int) (*txlock.Claimed[Tx], error) {
		return f.Locks.Claim(fmt.Sprint(n)).TryTake(background, "holder", time.Hour)
	}
	last := 0
	for range tier.Pick(1, 1, 125) {
		_, err := take(last)
		require.NoError(t, err)
		fatal := rand.Int64N(30)
		var next, acknowledged atomic.Int64
		next.Store(int64(last))
		var mu sync.Mutex
		tokens, released := map[int]int64{}, map[int]bool{}
		note := func(change func()) {
			mu.Lock()
			change()
			mu.Unlock()
			if acknowledged.Add(1) == fatal+1 {
				_ = e.Kill()
			}
		}
		var workers sync.WaitGroup
		for range 8 {
			workers.Go(func() {
				for {
					n := int(next.Add(1))
					held, err := take(n)
					if err != nil {
						return
					}
					note(func() { tokens[n] = held.Token() })
					if n%2 == 0 {
						continue
					}
					if err := held.Release(background); err != nil {
						mu.Lock()
						delete(tokens, n) // it may be released or not
						mu.Unlock()
						return
					}
					note(func() { released[n] = true })
				}
			})
		}
		workers.Wait()
		first := last + 1
		last = int(next.Load()) + 1
		require.NoError(t, e.Restart(background))
		back(t, e)
		for n := first; n < last; n++ {
			state, err := f.Locks.Claim(fmt.Sprint(n)).State(background)
			require.NoError(t, err)
			token, taken := tokens[n]
			switch {
			case released[n]:
				require.Zero(t, state, n)
			case taken:
				require.Equal(t, "holder", state.By, n)
				require.Equal(t, token, state.Token, n)
			}
			held, err := take(n)
			require.NoError(t, err)
			if state.By != "" {
				require.Equal(t, state.Token, held.Token(), "it is still his")
			} else {
				require.Greater(t, held.Token(), token)
			}
		}
	}
}
