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
	"github.com/txlock/txlock/internal/test/must"
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
	eachOpened(t, claimKilledAtCommit[pgx.Tx], claimKilledAtCommit[*sql.Tx])
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

// own starts a server of the same kind for one test, with its lock table and a fixture.
// That is nil where the tests were given their servers, and start none.
func own[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], options servers.Options) (
	*testbed.Engine, *testbed.Fixture[Tx],
) {
	t.Helper()
	if e.Given() {
		return nil, nil
	}
	server := must.Get(servers.Start(background, e.Kind, options))(t)
	e = testbed.Owned(t, server)
	f := testbed.NewFixture(t, e, c)
	require.NoError(t, f.Locks.Install(background))
	return e, f
}

func TestHolderKilled(t *testing.T) { eachOpened(t, holderKilled[pgx.Tx], holderKilled[*sql.Tx]) }

// A holder that dies frees the lock at once, not when its lease ends, in a Lock as well as in a Do.
func holderKilled[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key")
	insert := "INSERT INTO " + table + " VALUES (1)"
	for part, ready := range map[string]string{"hold": "holds", "work": "working"} {
		holder := e.StartPartner(t, testbed.Part{
			Plays: part, DSN: e.DSNFor(f.Label, "", nil), Key: f.Key(part), Lease: time.Minute, Statement: insert,
		})
		for holder.Next(t) != ready {
		}
		granted := f.Stranger(t, f.Key(part))
		require.NoError(t, holder.Process.Kill())
		testbed.Receive(t, granted)
	}
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
}

func TestWaiterKilled(t *testing.T) { eachOpened(t, waiterKilled[pgx.Tx], waiterKilled[*sql.Tx]) }

// A waiter that dies neither lets the next one in early, nor keeps it out.
func waiterKilled[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	// with clean, the server has noticed the death before the lock is released
	for _, clean := range []bool{false, true} {
		f := testbed.NewFixture(t, e, c)
		other := testbed.NewFixture(t, e, c)
		key := f.Key("queue")
		lock := testbed.Lock(t, f.Locks.Mutex(key))
		waiter := e.StartPartner(t, testbed.Part{
			Plays: "hold", DSN: e.DSNFor(other.Label, "", nil), Key: key, Lease: time.Minute,
		})
		require.Equal(t, "asks", waiter.Next(t))
		other.Waiters(t, 1)
		granted := f.Stranger(t, key)
		require.NoError(t, waiter.Process.Kill())
		if clean && e.Postgres {
			other.Waiters(t, 0)
		}
		require.Error(t, waiter.Exit())
		require.Empty(t, granted, "the next one was let in early")
		f.Taken(t, key)
		testbed.Unlock(t, lock)
		testbed.Receive(t, granted)
	}
}

// A client that is killed inside a Do leaves the server's session to the next client of the pooler
// as it was: one that has no settings of its own can write. Odyssey sends ROLLBACK, as PgCat and
// PgDog do, and the session goes on to the next client. (PgBouncer closes such a session.)
func TestKilledBehindPooler(t *testing.T) {
	t.Parallel()
	testbed.Each(t, testbed.AllPostgres(), func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PgxOpened())
		table := f.MakeTable(t, "id int")
		pooler, err := servers.StartOdyssey(background, e.Server, "pool_size 1", "pool_reserve_prepared_statement yes")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pooler.Stop()) })
		shared := e.Through(pooler).Address()
		next := must.Get(pgx.Connect(background, e.DSNFor(f.Label, shared, nil)))(t)
		t.Cleanup(func() { require.NoError(t, next.Close(background)) })
		for range tier.Pick(1, 2, 100) {
			client := e.StartPartner(t, testbed.Part{
				Plays: "work", DSN: e.DSNFor(f.Label, shared, nil), Key: f.Key("a"), Lease: time.Minute,
				Statement: "INSERT INTO " + table + " VALUES (1)",
			})
			require.Equal(t, "working", client.Next(t))
			require.NoError(t, client.Process.Kill())
			require.Error(t, client.Exit())
			require.NoError(t, testbed.ErrorOf(next.Exec(background, "INSERT INTO "+table+" VALUES (2)")))
			f.Free(t, f.Key("a"))
		}
		require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table+" WHERE id = 1"))
	})
}
