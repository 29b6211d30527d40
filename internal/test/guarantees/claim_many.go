package guarantees

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
)

// sender is a driver that notes when it runs a statement of a kind outside any lock.
type sender[Tx any] struct {
	dialects.Driver[Tx]
	about string // what the name of the statement's table has; empty: any

	mu   sync.Mutex
	sent []time.Time
}

func (s *sender[Tx]) Run(ctx context.Context, q dialects.Query, in ...Tx) ([]string, error) {
	if strings.Contains(q.Table, s.about) {
		s.mu.Lock()
		s.sent = append(s.sent, time.Now())
		s.mu.Unlock()
	}
	return s.Driver.Run(ctx, q, in...)
}

// times are those from a number on.
func (s *sender[Tx]) times(from int) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent[from:])
}

// ClaimsLate shows that callers who wait for claims whose holders are late send few statements,
// whoever they say they are, and keep nobody from another claim.
func ClaimsLate[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const late, callers = 8, 40
	// The work of the holders sends nothing, however long a busy machine takes for the rest.
	holders := testbed.NewSizedFixture(t, e, c, late+2, e.Address(), txlock.WithLease(time.Hour))
	driver, p := c.Connect(t, e.DSNFor(holders.Label, "", nil), 4)
	t.Cleanup(func() { p.Close() })
	counted := &sender[Tx]{Driver: driver, about: "_claims"}
	locks := txlock.New(counted, txlock.WithTable(e.Table()))
	t.Cleanup(func() { _ = locks.Close() })
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	var waiting, working errgroup.Group
	over, inside, keys := make(chan struct{}), make(chan struct{}, late), map[string]bool{}
	for i := range late {
		key := holders.OnceKey(fmt.Sprint("late", i), "claim:")
		keys[key] = true
		held := testbed.Take(t, holders.Locks.Claim(key), "holder", 8*time.Second)
		working.Go(func() error {
			return held.Do(background, func(context.Context, Tx) error {
				inside <- struct{}{}
				<-over
				return nil
			})
		})
		testbed.Receive(t, inside)
		for n := range callers {
			by := []string{"holder", fmt.Sprint("caller ", n)}[n%2]
			waiting.Go(func() error {
				if _, err := locks.Claim(key).Take(ctx, by, time.Minute); err == nil {
					return fmt.Errorf("%s has the claim", by)
				}
				return nil
			})
		}
	}
	for key := range keys {
		eventually.Every(t, "each has tried, and all claims are over", testbed.PollEvery, func() bool {
			state := testbed.StateOf(t, holders.Locks.Claim(key))
			return len(counted.times(0)) >= late*callers && state == txlock.ClaimState{}
		})
	}
	other, before := locks.Claim(holders.OnceKey("other", "claim:")), len(counted.times(0))
	first := testbed.Take(t, other, "first", time.Minute)
	taken := make(chan *txlock.Claimed[Tx], 1)
	take := func(by string) {
		waiting.Go(func() error {
			held, err := other.Take(ctx, by, time.Minute)
			if err == nil {
				taken <- held
			} else if ctx.Err() != nil {
				err = nil
			}
			return err
		})
	}
	take("second")
	eventually.Every(t, "three seconds pass, or many statements", testbed.PollEvery, func() bool {
		sent := counted.times(before)
		return len(sent) >= 30 || len(sent) >= 2+2 && time.Since(sent[0]) > 3*time.Second
	})
	sent := counted.times(before)
	for i := range sent[min(len(sent), 2*late+4):] { // a holder waits apart from the others
		require.GreaterOrEqual(t, sent[i+2*late+4].Sub(sent[i]), 2*time.Second, "ten a second, the test's included")
	}
	endsPromptly(t, "the wait for an unrelated claim", func() time.Duration {
		begun := time.Now()
		require.NoError(t, first.Release(background))
		first = testbed.Receive(t, taken)
		late := time.Since(begun)
		take("behind " + first.By())
		return late
	})
	cancel()
	require.NoError(t, waiting.Wait())
	close(over)
	require.NoError(t, working.Wait())
}

// ClaimsBounded shows that Within bounds a whole call, also at a full pool, and that a claim does
// not depend on the slots of keys.
func ClaimsBounded[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, _ := testbed.NewInstalled(t, e, c, txlock.WithSlots(1))
	first := testbed.Take(t, f.Locks.Claim("first"), "me", time.Minute)
	lock := testbed.Lock(t, f.Locks.Mutex("any"))
	require.NoError(t, first.Do(background, func(context.Context, Tx) error {
		_, err := f.Locks.Claim("second").TryTake(background, "me", time.Minute)
		require.NoError(t, err, "all keys have one slot")
		return nil
	}))
	testbed.Unlock(t, lock)

	full := testbed.NewSizedFixture(t, e, c, 1, e.Address())
	claim := full.Locks.Claim(full.OnceKey("full", "claim:")).Within(2 * time.Second)
	lock = testbed.Lock(t, full.Locks.Mutex(full.Key("full")))
	for name, call := range map[string]func() error{
		"TryTake": func() error { _, err := claim.TryTake(background, "me", time.Minute); return err },
		"Take":    func() error { _, err := claim.Take(background, "me", time.Minute); return err },
		"State":   func() error { _, err := claim.State(background); return err },
	} {
		endsPromptly(t, name, func() time.Duration {
			begun := time.Now()
			err := call()
			late := time.Since(begun) - 2*time.Second
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.ErrorIs(t, err, txlock.ErrNotAcquired, name)
			return late
		})
	}
	testbed.Unlock(t, lock)
}

// ClaimsMany shows that many who wait for claims need one connection, and all get one.
func ClaimsMany[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newSeat(t, testbed.NewSizedFixture(t, e, c, 2, e.Address()))
	held := s.take(t, "first")
	var callers errgroup.Group
	inside := make(chan struct{}, 1)
	for i := range 40 {
		callers.Go(func() error {
			mine, err := s.claim.Take(background, "cart "+strconv.Itoa(i), time.Hour)
			if err != nil {
				return err
			}
			select {
			case inside <- struct{}{}:
			default:
				return errors.New("two have the claim")
			}
			<-inside
			return mine.Release(background)
		})
	}
	s.Unused(t)
	require.NoError(t, held.Release(background))
	require.NoError(t, callers.Wait())
}

// ClaimsSwept shows that Sweep deletes what ended long ago, and nothing else.
func ClaimsSwept[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewInstalled(t, e, c)
	tokens := map[string]int64{}
	for i, by := range []string{"held", "ended", "long ago", "released"} {
		held := testbed.Take(t, f.Locks.Claim(by), by, time.Hour)
		for range i { // so that the tokens differ
			require.NoError(t, held.Release(background))
			held = testbed.Take(t, f.Locks.Claim(by), by, time.Hour)
		}
		tokens[by] = held.Token()
		past := "UTC_TIMESTAMP(6) - INTERVAL " + strconv.Itoa(i) + " HOUR"
		if f.Postgres {
			past = "now() - interval '" + strconv.Itoa(i) + " hours'"
		}
		switch by {
		case "released":
			require.NoError(t, held.Release(background))
		case "held":
		default:
			token := strconv.FormatInt(held.Token(), 10)
			f.AsAdmin(t, "UPDATE "+table+"_claims SET until = "+past+" WHERE holder <> '' AND token = "+token)
		}
	}
	deleted := must.Get(f.Locks.Sweep(background, 90*time.Minute))(t)
	require.EqualValues(t, 2, deleted)
	deleted = must.Get(f.Locks.Sweep(background, 0))(t)
	require.EqualValues(t, 1, deleted)
	state := testbed.StateOf(t, f.Locks.Claim("held"))
	require.Equal(t, "held", state.By)

	// Tokens of a claim do not go down where its row has gone. LockTx of it locks nothing that
	// others insert.
	again := must.Get(f.Locks.Claim("ended").TryTake(background, "again", time.Hour))(t)
	require.Greater(t, again.Token(), tokens["ended"])
	if !f.Postgres {
		require.NoError(t, again.Release(background))
		deleted = must.Get(f.Locks.Sweep(background, 0))(t)
		require.EqualValues(t, 1, deleted)
		tx := f.Begin(t, f.DSNFor(f.Label, "", nil), sql.LevelReadCommitted)
		require.ErrorIs(t, again.LockTx(background, tx), txlock.ErrClaimEnded)
		for i := range 5 {
			testbed.Take(t, f.Locks.Claim(strconv.Itoa(i)), "cart", time.Minute)
		}
		require.NoError(t, f.End(background, tx, false))
	}
	last := testbed.Take(t, f.Locks.Claim("last"), "last", time.Hour)
	f.AsAdmin(t, "DROP TABLE "+table+"_claims")
	require.ErrorIs(t, last.Release(background), txlock.ErrNotInstalled)
	_, err := f.Locks.Sweep(background, 0)
	require.NoError(t, err, "it is an installation from before there were claims")
	require.NoError(t, testbed.ErrorOf(f.Locks.Inspect(background, "held")))
}
