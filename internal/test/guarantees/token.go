package guarantees

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

var installFences sync.Map // engine to *sync.Once

func newFencingFixture[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) *testbed.Fixture[Tx] {
	t.Helper()
	f := testbed.NewSizedFixture(t, e, c, testbed.PoolSize, "", txlock.WithFencing())
	installed, _ := installFences.LoadOrStore(e, new(sync.Once))
	installed.(*sync.Once).Do(func() { require.NoError(t, f.Locks.Install(background)) })
	return f
}

// TokensIncrease over keys, sessions, tries, rows and nested locks, whatever the last holder did
// with its transaction.
func TokensIncrease[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := newFencingFixture(t, e, c)
	other := newFencingFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key", "(1), (2)")
	last := int64(0)
	later := func(lock *txlock.Lock, err error) *txlock.Lock {
		t.Helper()
		require.NoError(t, err)
		require.Greater(t, lock.Token(), last)
		last = lock.Token()
		return lock
	}
	for range 3 {
		for _, locks := range []*txlock.Locker[Tx]{f.Locks, other.Locks} {
			for _, m := range []*txlock.Mutex[Tx]{
				locks.Mutex(f.Key("a")), locks.Mutex(f.Key("b")), locks.Mutex(f.Key("a"), f.Key("b"), f.Key("c")),
				locks.Rows(table, "id", 1), locks.Rows(table, "id", 2, 1),
			} {
				lock := later(m.Lock(background))
				nested := later(locks.Mutex(f.Key("nested")).Lock(lock.Context()))
				again := testbed.LockIn(t, lock.Context(), m)
				require.Equal(t, lock.Token(), again.Token(), "the same hold")
				for _, handle := range []*txlock.Lock{lock, nested, again} {
					testbed.Unlock(t, handle)
				}
				lock = later(m.TryLock(background))
				testbed.Misses(t, m)
				testbed.Unlock(t, lock)
				require.ErrorIs(t, m.Do(background, func(ctx context.Context, _ Tx) error {
					nested := later(locks.Mutex(f.Key("nested")).Lock(ctx))
					own := later(m.Lock(ctx)) // the Do has locked its rows without a token
					require.NoError(t, nested.Unlock(ctx))
					require.NoError(t, own.Unlock(ctx))
					return errWork
				}), errWork)
			}
		}
	}
}

// TokensInOrder compares the holders of one key, in the order in which they held it.
func TokensInOrder[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := newFencingFixture(t, e, c)
	var tokens []int64 // guarded by the lock
	contend(t, 12, 15, func(int) error {
		lock, err := f.Locks.Mutex(f.Key("one")).Lock(background)
		if err != nil {
			return err
		}
		tokens = append(tokens, lock.Token())
		return lock.Unlock(background)
	})
	require.Len(t, tokens, 12*15)
	for i := range tokens[1:] {
		require.Greater(t, tokens[i+1], tokens[i])
	}
}

// SpentRun shows that a run whose counts are spent is followed by another.
func SpentRun[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	owner, table := testbed.NewFixtureWithTable(t, e, c, txlock.WithFencing(), txlock.WithSlots(1024))
	require.NoError(t, owner.Locks.Install(background))
	var last int64 // guarded by the lock
	var both []*txlock.Locker[Tx]
	for range 2 {
		both = append(both, owner.Another(t, 4, txlock.WithTable(table), txlock.WithFencing(), txlock.WithQueue(4)))
	}
	draw := func() {
		contend(t, 16, 5, func(caller int) error {
			lock, err := both[caller%2].Mutex("a", "b").Lock(background)
			if err != nil {
				return err
			}
			if lock.Token() <= last {
				t.Errorf("token %d after %d", lock.Token(), last)
			}
			last = lock.Token()
			return lock.Unlock(background)
		})
	}
	draw()
	const run, counts = 1 << 40, 1 << 24
	first := last / run
	if e.Postgres { // the server counts on to where few are left
		e.AsAdmin(t, fmt.Sprintf("SELECT setval('%s_tokens', start + %d) FROM %s_runs", table, run-1<<20-50, table))
	} else {
		e.AsAdmin(t, fmt.Sprintf("DO BENCHMARK(%d - UUID_SHORT() %% %d, UUID_SHORT())", counts-1<<14-50, counts))
	}
	draw()
	require.Greater(t, last/run, first, "another run has begun")
	require.Less(t, last%run, int64(1<<30))
}

// NewRun: many clients at once find that the table of runs was emptied by a crash, or holds rows of
// another run or another server.
func NewRun[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	// Runs are counted for each lock table, so this one's are its own.
	owner, table := testbed.NewFixtureWithTable(t, e, c, txlock.WithFencing(), txlock.WithSlots(1024))
	require.NoError(t, owner.Locks.Install(background))
	t.Cleanup(func() { e.DropInstalled(t, table) })
	runs, epochs := table+"_runs", table+"_epochs"
	locker := func() *testbed.Fixture[Tx] {
		return testbed.NewSizedFixture(t, e, c, testbed.PoolSize, "", txlock.WithTable(table), txlock.WithFencing())
	}
	spoilt := []string{"DELETE FROM " + runs}
	if !e.Postgres {
		spoilt = append(spoilt,
			// from a dump of a server that started later
			"UPDATE "+runs+" SET start = 18446744073709551615",
			"UPDATE "+runs+" SET start = 1", // from a server that started long before
			// the server was started anew, in the same second and in the next, by its clock
			"UPDATE "+runs+" SET start = UUID_SHORT() + 1000",
			"UPDATE "+runs+" SET start = UUID_SHORT() - (1 << 24)",
			// another server has taken over since
			"REPLACE INTO "+runs+" (epoch, server, start) SELECT MAX(epoch) + 1, 4242, 1 FROM "+epochs,
		)
	}
	for _, spoil := range spoilt {
		former := locker()
		lock := testbed.Lock(t, former.Locks.Mutex("a"))
		testbed.Unlock(t, lock)
		if strings.Contains(spoil, "4242") { // the number that the other server has drawn
			former.AsAdmin(t, "INSERT INTO "+epochs+" VALUES ()")
		}
		former.AsAdmin(t, spoil)

		f := locker()
		tokens := make([]int64, 8)
		var group errgroup.Group
		for i := range tokens {
			group.Go(func() error {
				lock, err := f.Locks.Mutex(fmt.Sprint(i)).Lock(background)
				if err != nil {
					return err
				}
				tokens[i] = lock.Token()
				return lock.Unlock(background)
			})
		}
		require.NoError(t, group.Wait(), spoil)
		slices.Sort(tokens)
		require.Len(t, slices.Compact(slices.Clone(tokens)), len(tokens), "no token is given twice")
		require.Greater(t, testbed.RunOf(tokens[0]), testbed.RunOf(lock.Token()), spoil)
		require.Equal(t, testbed.RunOf(tokens[0]), testbed.RunOf(tokens[len(tokens)-1]), "all of one run")
		if !e.Postgres {
			var skipped int
			require.NoError(t, e.Admin.QueryRow("SELECT start % (1 << 24) FROM "+runs+" ORDER BY epoch DESC LIMIT 1").
				Scan(&skipped))
			require.GreaterOrEqual(t, skipped, 1<<14, "a server started anew in this second counts from 0")
		}
	}
}
