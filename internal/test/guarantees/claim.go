package guarantees

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
)

// seat is a claim, and a table of what is sold under it.
type seat[Tx any] struct {
	*testbed.Fixture[Tx]
	name  string
	claim *txlock.Claim[Tx]
	table string
}

func newSeat[Tx any](t *testing.T, f *testbed.Fixture[Tx]) seat[Tx] {
	name := f.OnceKey("seat", "claim:")
	return seat[Tx]{f, name, f.Locks.Claim(name), f.MakeTable(t, "id int primary key, cart varchar(100)")}
}

func (s seat[Tx]) take(t *testing.T, by string) *txlock.Claimed[Tx] {
	t.Helper()
	held := testbed.Take(t, s.claim, by, time.Hour)
	return held
}

// expire ends all claims of the seat's name, as time does.
func (s seat[Tx]) expire(t *testing.T, held *txlock.Claimed[Tx]) {
	t.Helper()
	past := "UTC_TIMESTAMP(6) - INTERVAL 1 SECOND"
	if s.Postgres {
		past = "now() - interval '1 second'"
	}
	s.AsAdmin(t, "UPDATE "+s.Table()+"_claims SET until = "+past+" WHERE claim = "+s.literal(held))
}

// hash is what clients agree on.
func (s seat[Tx]) hash(held *txlock.Claimed[Tx]) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(held.Key())))
}

func (s seat[Tx]) literal(held *txlock.Claimed[Tx]) string {
	if s.Postgres {
		return `'\x` + s.hash(held) + "'"
	}
	return "x'" + s.hash(held) + "'"
}

func (s seat[Tx]) sell(cart string) func(context.Context, Tx) error {
	return func(ctx context.Context, tx Tx) error {
		return s.Exec(ctx, tx, "INSERT INTO "+s.table+" SELECT COUNT(*) + 1, '"+cart+"' FROM "+s.table)
	}
}

func (s seat[Tx]) sold(t *testing.T) int { return s.Total(t, "SELECT COUNT(*) FROM "+s.table) }

// refused shows that another has the claim.
func (s seat[Tx]) refused(t *testing.T, by string) {
	t.Helper()
	state := testbed.StateOf(t, s.claim)
	_, err := s.claim.TryTake(background, "another", time.Minute)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	require.NotErrorIs(t, err, txlock.ErrLost)
	var held *txlock.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, by, held.By)
	require.Equal(t, state.Until, held.Until)
	require.ErrorContains(t, err, by)
}

// over shows that a claim is not its holder's any more, whatever it calls.
func (s seat[Tx]) over(t *testing.T, held *txlock.Claimed[Tx]) {
	t.Helper()
	before := s.sold(t)
	require.ErrorIs(t, held.Do(background, func(context.Context, Tx) error {
		t.Error("work of an ended claim")
		return nil
	}), txlock.ErrLost)
	_, err := held.Extend(background, time.Hour)
	require.ErrorIs(t, err, txlock.ErrLost)
	require.ErrorContains(t, err, s.name)
	tx := s.Begin(t, s.DSNFor(s.Label, "", nil), sql.LevelReadCommitted)
	require.ErrorIs(t, held.LockTx(background, tx), txlock.ErrLost)
	require.NoError(t, s.sell("of an aborted claim")(background, tx), "the transaction is usable")
	require.NoError(t, s.End(background, tx, false))
	require.Equal(t, before, s.sold(t))
}

// ClaimHeld shows that a claim has one holder at a time, without a connection, and who that is.
func ClaimHeld[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newSeat(t, testbed.NewFixture(t, e, c))
	state := testbed.StateOf(t, s.claim)
	require.Zero(t, state)
	held := s.take(t, "cart 77 é'\\")
	require.Equal(t, s.name, held.Key())
	require.Equal(t, "cart 77 é'\\", held.By())
	require.Positive(t, held.Token())
	s.Transactions(t, 0)
	s.Unused(t)
	state = testbed.StateOf(t, s.claim)
	require.Equal(t, txlock.ClaimState{
		By: held.By(), Token: held.Token(), Since: held.Until().Add(-time.Hour), Until: held.Until(),
	}, state)
	require.WithinDuration(t, time.Now(), state.Since, time.Minute)
	s.refused(t, held.By())

	again := must.Get(s.claim.Take(background, held.By(), 2*time.Hour))(t)
	require.Equal(t, held.Token(), again.Token())
	require.Greater(t, again.Until().Sub(held.Until()), 59*time.Minute)
	other := testbed.NewFixture(t, e, c).Locks
	held = must.Get(other.Claimed(again.String()))(t) // in another process
	require.Equal(t, []any{again.Key(), again.By(), again.Token(), again.Until()},
		[]any{held.Key(), held.By(), held.Token(), held.Until()})
	until := must.Get(held.Extend(background, 3*time.Hour))(t)
	require.Equal(t, until, held.Until())
	state = testbed.StateOf(t, s.claim)
	require.Equal(t, until, state.Until)
	require.Greater(t, until.Sub(again.Until()), 59*time.Minute)

	require.NoError(t, held.Release(background))
	require.ErrorIs(t, again.Release(background), txlock.ErrClaimEnded, "it was released")
	state = testbed.StateOf(t, s.claim)
	require.Zero(t, state)
	s.over(t, held)
	next := s.take(t, held.By())
	require.Greater(t, next.Token(), held.Token())
	s.over(t, held)
	require.ErrorIs(t, held.Release(background), txlock.ErrLost)
	s.refused(t, next.By())
	require.NoError(t, next.Do(background, s.sell("next")))
	require.Equal(t, 1, s.sold(t))
	s.Free(t, "claim:"+s.name)
}

// ClaimRefused shows that what cannot be a claim is an error, and changes nothing.
func ClaimRefused[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newSeat(t, testbed.NewFixture(t, e, c))
	long := strings.Repeat("x", 256)
	for _, bad := range []struct {
		key, by string
		d       time.Duration
		says    string
	}{
		{"", "me", time.Minute, "the key has 0 bytes"},
		{long, "me", time.Minute, "the key has 256 bytes"},
		{s.name, "", time.Minute, "1 to 255 bytes"},
		{s.name, long, time.Minute, "1 to 255 bytes"},
		{s.name, "a\x00", time.Minute, "NUL"},
		{s.name, "\xff", time.Minute, "UTF-8"},
		{s.name, "me", time.Second - 1, "at least 1s"},
		{s.name, "me", 367 * 24 * time.Hour, "at most"},
	} {
		_, err := s.Locks.Claim(bad.key).TryTake(background, bad.by, bad.d)
		require.ErrorContains(t, err, bad.says)
		require.NotErrorIs(t, err, txlock.ErrNotAcquired)
		require.ErrorContains(t, testbed.ErrorOf(s.Locks.Claim(bad.key).Take(background, bad.by, bad.d)), bad.says)
	}
	held := s.take(t, long[1:])
	require.ErrorContains(t, testbed.ErrorOf(held.Extend(background, time.Millisecond)), "at least 1s")
	require.Error(t, held.Do(background, nil))
	second := strings.Replace(held.String(), "1.", "2.", 1)
	for _, text := range []string{"", "claim1", held.String() + ".", second, long} {
		require.ErrorContains(t, testbed.ErrorOf(s.Locks.Claimed(text)), "no claim", text)
	}
	s.refused(t, held.By())
}

// ClaimWork shows that work under a claim is committed only if the claim was held when it began,
// and that nobody else has the claim before it ends.
func ClaimWork[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newSeat(t, testbed.NewFixture(t, e, c))
	held := s.take(t, "cart")
	wrong := errors.New("wrong")
	require.ErrorIs(t, held.Do(background, func(ctx context.Context, tx Tx) error {
		require.NoError(t, s.sell("undone")(ctx, tx))
		return wrong
	}), wrong)
	require.Zero(t, s.sold(t))
	must.Get(held.Extend(background, 4*time.Second))(t) // longer than a busy machine needs to begin a Do
	require.NoError(t, held.Do(background, func(ctx context.Context, tx Tx) error {
		eventually.Every(t, "the claim ends", testbed.PollEvery, func() bool {
			state := testbed.StateOf(t, s.claim)
			return state == txlock.ClaimState{}
		})
		require.ErrorIs(t, testbed.ErrorOf(s.claim.TryTake(background, "another", time.Minute)), txlock.ErrNotAcquired)
		_, err := s.claim.Within(150*time.Millisecond).Take(background, "another", time.Minute)
		testbed.ErrorIs(t, err, txlock.ErrNotAcquired, context.DeadlineExceeded)
		return s.sell("late")(ctx, tx)
	}))
	require.Equal(t, 1, s.sold(t))
	s.over(t, held)
	require.ErrorIs(t, held.Release(background), txlock.ErrLost)

	held = s.take(t, "second")
	tx := s.Begin(t, s.DSNFor(s.Label, "", nil), sql.LevelReadCommitted)
	require.NoError(t, held.LockTx(background, tx))
	released := testbed.Go(func() error { return held.Release(background) })
	s.Waiters(t, 1)
	require.Empty(t, released)
	require.NoError(t, s.End(background, tx, true))
	require.NoError(t, testbed.Receive(t, released))
	s.over(t, held)
	held = s.take(t, "third")
	s.expire(t, held)
	s.over(t, held)
}

// ClaimNested shows that a claim in the work of a Do is part of its transaction.
func ClaimNested[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newSeat(t, testbed.NewFixture(t, e, c))
	second := s.Locks.Claim(s.OnceKey("second", "claim:"))
	wrong := errors.New("wrong")
	outer := s.Locks.Mutex(s.Key("outer"))
	held, gone := s.take(t, "cart"), s.take(t, "cart")
	other := testbed.Take(t, second, "cart", time.Minute)
	require.ErrorIs(t, outer.Do(background, func(ctx context.Context, _ Tx) error {
		require.NoError(t, held.Do(ctx, s.sell("cart")))
		require.NoError(t, held.Release(ctx))
		require.ErrorIs(t, held.Do(ctx, s.sell("none")), txlock.ErrClaimEnded)
		return wrong
	}), wrong)
	require.Zero(t, s.sold(t))
	s.refused(t, "cart")

	require.NoError(t, outer.Do(background, func(ctx context.Context, _ Tx) error {
		require.NoError(t, other.Do(ctx, func(ctx context.Context, _ Tx) error { return held.Do(ctx, s.sell("both")) }))
		require.NoError(t, testbed.ErrorOf(held.Extend(ctx, time.Minute)))
		require.NoError(t, held.Release(ctx))
		require.ErrorIs(t, gone.Do(ctx, s.sell("none")), txlock.ErrLost)
		return nil
	}))
	require.Equal(t, 1, s.sold(t))
	s.over(t, held)

	// A claim is taken outside of sessions.
	refused := func(ctx context.Context) {
		require.ErrorContains(t, testbed.ErrorOf(s.claim.TryTake(ctx, "cart", time.Minute)), "in a Do or a Lock")
	}
	lock := testbed.Lock(t, s.Locks.Mutex(s.Key("lock")))
	refused(lock.Context())
	_, err := other.Extend(lock.Context(), time.Minute)
	require.ErrorIs(t, err, txlock.ErrInsideLock)
	testbed.Unlock(t, lock)
	require.NoError(t, outer.Do(background, func(ctx context.Context, _ Tx) error {
		refused(ctx)
		held, err = s.claim.TryTake(txlock.Apart(ctx), "cart", time.Minute)
		return err
	}))
	require.NoError(t, held.Release(background))
}

// ClaimWaits shows that Take waits until a claim is released, or over, without a connection.
func ClaimWaits[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newSeat(t, testbed.NewFixture(t, e, c))
	held := s.take(t, "first")
	eventually.Every(t, "a wait ends between two tries", testbed.PollEvery, func() bool {
		_, err := s.claim.Within(500*time.Millisecond).Take(background, "second", time.Minute)
		testbed.ErrorIs(t, err, txlock.ErrNotAcquired, context.DeadlineExceeded)
		var by *txlock.HeldError
		return errors.As(err, &by) && by.By == "first"
	})
	ctx, cancel := context.WithCancel(background)
	taken := make(chan *txlock.Claimed[Tx], 1)
	later := func(locks *txlock.Locker[Tx], by string, d time.Duration) <-chan error {
		return testbed.Go(func() error {
			held, err := locks.Claim(s.name).Take(ctx, by, d)
			if err == nil {
				taken <- held
			}
			return err
		})
	}
	done := later(s.Locks, "second", time.Minute)
	s.Unused(t)
	cancel()
	testbed.ErrorIs(t, testbed.Receive(t, done), txlock.ErrNotAcquired, context.Canceled)

	// Another process releases it, and then the time is over.
	ctx = background
	far := testbed.NewFixture(t, e, c).Locks
	done = later(far, "second", time.Second)
	require.NoError(t, held.Release(background))
	require.NoError(t, testbed.Receive(t, done))
	held = <-taken
	require.Equal(t, "second", held.By())
	require.NoError(t, testbed.Receive(t, later(s.Locks, "third", time.Hour)))
	third := <-taken
	require.Greater(t, third.Token(), held.Token())
	require.False(t, third.Until().Add(-time.Hour).Before(held.Until()), "by the database's clock")

	// Close ends the wait.
	done = later(far, "fourth", time.Hour)
	s.Unused(t)
	require.NoError(t, far.Close())
	require.ErrorIs(t, testbed.Receive(t, done), txlock.ErrClosed)
}
