package faults

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

func TestOrdersOutliveTheServer(t *testing.T) {
	testbed.Lines(
		func(e *testbed.Engine, c testbed.Client[pgx.Tx]) { onMortal(t, e, c, ordersOutlive) },
		func(e *testbed.Engine, c testbed.Client[*sql.Tx]) { onMortal(t, e, c, ordersOutlive) })
}

// A server is killed again and again under the load of many callers of one Combined. What was
// acknowledged is there, nothing is there twice, and what is there without having been acknowledged
// was in a COMMIT that broke. The full tier kills 500 times, on all lines together.
func ordersOutlive[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	done := f.MakeTable(t, "id int") // not unique: what is done twice must show
	stock := testbed.NewFixture(t, e, c).MakeTable(t, "id int primary key, n int")
	f.AsAdmin(t, "INSERT INTO "+stock+" VALUES (1, 0)")
	combined := txlock.Combine(func([]int) *txlock.Mutex[Tx] { return f.Locks.Rows(stock, "id", 1) },
		func(ctx context.Context, tx Tx, in []int) ([]txlock.Result[struct{}], error) {
			rows := "(" + strings.Join(strings.Fields(strings.Trim(fmt.Sprint(in), "[]")), "), (") + ")"
			err := f.Exec(ctx, tx, fmt.Sprintf("UPDATE %s SET n = n - %d WHERE id = 1", stock, len(in)))
			if err == nil {
				err = f.Exec(ctx, tx, "INSERT INTO "+done+" VALUES "+rows)
			}
			return make([]txlock.Result[struct{}], len(in)), err
		}).AtMost(16)
	var mu sync.Mutex
	var acknowledged []int
	failed := map[int]error{}
	order := func(number int) error {
		_, err := combined.Do(background, number)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed[number] = err
		} else {
			acknowledged = append(acknowledged, number)
		}
		return err
	}
	next := 0
	for range tier.Pick(1, 2, 42) {
		next = untilKilled(t, e, 48, 300, next, order)
	}
	require.NoError(t, order(next))

	times := make(map[int]int)
	for _, number := range database.Column[int](t, f.Admin, "SELECT id FROM "+done) {
		times[number]++
	}
	for _, number := range acknowledged {
		require.Equal(t, 1, times[number], "order %d was acknowledged", number)
	}
	for number, err := range failed {
		if errors.Is(err, txlock.ErrUnknown) {
			require.LessOrEqual(t, times[number], 1, "order %d: %v", number, err)
		} else {
			require.Zero(t, times[number], "order %d: %v", number, err)
		}
	}
	require.Equal(t, f.Total(t, "SELECT COUNT(*) FROM "+done), -f.Total(t, "SELECT n FROM "+stock))
}

// untilKilled has workers call with one number after the other, until the server is killed: when
// some of the calls have succeeded, fewer than within. Then the server is back. It returns the
// first number that was not used.
func untilKilled(t *testing.T, e *testbed.Engine, workers int, within int64, first int, call func(int) error) int {
	t.Helper()
	fatal := rand.Int64N(within)
	var next, succeeded atomic.Int64
	next.Store(int64(first))
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for call(int(next.Add(1)-1)) == nil {
				if succeeded.Add(1) == fatal+1 {
					_ = e.Kill()
				}
			}
		})
	}
	group.Wait()
	require.NoError(t, e.Restart(background))
	back(t, e)
	return int(next.Load())
}

func TestClaimKilledAtCommit(t *testing.T) {
	testbed.EachOpened(t, claimKilledAtCommit[pgx.Tx], claimKilledAtCommit[*sql.Tx])
}

// A server is killed while many take claims and release every other one. Afterwards each that was
// acknowledged is there, with its token, and each release. What was not acknowledged can be asked
// for again by the same holder. The next token of each is larger.
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
		require.NoError(t, testbed.ErrorOf(take(last)))
		var mu sync.Mutex
		tokens, released := map[int]int64{}, map[int]bool{}
		first := last + 1
		last = untilKilled(t, e, 8, 20, first, func(n int) error {
			held, err := take(n)
			if err != nil {
				return err
			}
			if n%2 == 1 {
				err = held.Release(background)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil { // else it may be released or not
				tokens[n], released[n] = held.Token(), n%2 == 1
			}
			return err
		})
		for n := first; n < last; n++ {
			state := testbed.StateOf(t, f.Locks.Claim(fmt.Sprint(n)))
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
