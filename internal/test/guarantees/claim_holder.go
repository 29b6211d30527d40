package guarantees

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// The fields of a claim's text that somebody may change. Those behind them are the claim's own.
const (
	textToken, textBy = 1, 4
	textSecret        = 5
)

// ClaimGuessed shows that the text of a claim is good for that claim alone: not with another token,
// another holder or another secret, and not in another lock table, whose tokens are the same.
func ClaimGuessed[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, _ := testbed.NewInstalled(t, e, c, txlock.WithSlots(64))
	far, _ := testbed.NewInstalled(t, e, c, txlock.WithSlots(64))
	s := seat[Tx]{f, "seat", f.Locks.Claim("seat"), f.MakeTable(t, "id int primary key, cart varchar(100)")}
	held := s.take(t, "victim")
	elsewhere := testbed.Take(t, far.Locks.Claim("seat"), "victim", time.Hour)
	fields := strings.Split(held.String(), ".")
	with := func(at int, text string) string {
		changed := slices.Clone(fields)
		changed[at] = text
		return strings.Join(changed, ".")
	}
	thief := hex.EncodeToString([]byte("thief"))
	later := strings.Split(elsewhere.String(), ".")
	later[textToken] = fields[textToken]
	guesses := map[string]string{
		"another holder":               with(textBy, thief),
		"a smaller token":              with(textToken, strconv.FormatInt(held.Token()-1, 10)),
		"a larger token":               with(textToken, strconv.FormatInt(held.Token()+1, 10)),
		"another lock table":           elsewhere.String(),
		"another lock table's, guided": strings.Join(later, "."),
	}
	if len(fields) > textSecret {
		guesses["another secret"] = with(textSecret, "1")
	}
	before := testbed.StateOf(t, s.claim)
	for what, text := range guesses {
		t.Run(what, func(t *testing.T) {
			guessed, err := s.Locks.Claimed(text)
			if held.Token() == 1 && what == "a smaller token" {
				require.ErrorContains(t, err, "no claim")
				return
			}
			require.NoError(t, err)
			s.over(t, guessed)
			require.ErrorIs(t, guessed.Release(background), txlock.ErrLost)
			require.NoError(t, s.Locks.Mutex("outer").Do(background, func(ctx context.Context, _ Tx) error {
				require.ErrorIs(t, guessed.Do(ctx, s.sell("nested")), txlock.ErrLost)
				require.ErrorIs(t, testbed.ErrorOf(guessed.Extend(ctx, time.Minute)), txlock.ErrLost)
				require.ErrorIs(t, guessed.Release(ctx), txlock.ErrLost)
				return nil
			}))
		})
	}
	state := testbed.StateOf(t, s.claim)
	require.Equal(t, before, state)
	require.Zero(t, s.sold(t))
	for _, bad := range []string{"", "\xff", "a\x00", strings.Repeat("x", 256)} {
		_, err := s.Locks.Claimed(with(textBy, hex.EncodeToString([]byte(bad))))
		require.ErrorContains(t, err, "no claim")
	}
	again, err := s.Locks.Claimed(held.String())
	require.NoError(t, err)
	require.NoError(t, again.Do(background, s.sell("victim")))
	require.NoError(t, again.Release(background))
}

// ClaimOwn shows that who has a claim takes it again behind another call of his, and keeps its
// token, also where others of the process wait for it.
func ClaimOwn[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newSeat(t, testbed.NewFixture(t, e, c))
	held := s.take(t, "cart")
	again := make(chan error, 1)
	next := testbed.Go(func() error { return testbed.ErrorOf(s.claim.Take(background, "next", time.Minute)) })
	require.NoError(t, held.Do(background, func(context.Context, Tx) error {
		_, err := s.claim.Within(500*time.Millisecond).Take(background, "third", time.Minute) // then the first waits
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = s.claim.TryTake(background, "cart", time.Minute)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		var by *txlock.HeldError
		require.ErrorAs(t, err, &by)
		require.Equal(t, "cart", by.By)
		require.ErrorContains(t, err, "another call")
		go func() {
			mine, err := s.claim.Take(background, "cart", time.Minute)
			if err == nil && mine.Token() != held.Token() {
				err = errors.New("another token")
			}
			again <- err
		}()
		_, err = s.claim.Within(150*time.Millisecond).Take(background, "cart", time.Minute) // the other misses too
		require.ErrorIs(t, err, context.DeadlineExceeded)
		return nil
	}))
	require.NoError(t, testbed.Receive(t, again))
	require.Empty(t, next)

	// A context that has ended does not keep it from its release. Nor does a limit of Take.
	ended, cancel := context.WithCancel(background)
	cancel()
	require.NoError(t, held.Release(ended))
	require.NoError(t, testbed.Receive(t, next))
	state := testbed.StateOf(t, s.claim)
	require.Equal(t, "next", state.By)
}

// ClaimShown shows that Inspect shows a claim, and that Break takes it away.
func ClaimShown[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newSeat(t, testbed.NewFixture(t, e, c))
	shown := func() []txlock.Holding {
		return slices.DeleteFunc(s.Look(t, s.name), func(h txlock.Holding) bool { return h.Column != "claim" })
	}
	require.Empty(t, shown())
	held := s.take(t, "cart")
	next := testbed.Go(func() error { _, err := s.claim.Take(background, "next", time.Hour); return err })
	h := shown()[0]
	require.Equal(t, s.name, h.Key)
	require.Equal(t, s.hash(held), h.Row)
	require.Empty(t, h.Holder.ID)
	require.Equal(t, held.By(), h.Holder.By)
	require.Equal(t, held.Until(), h.Holder.Until)
	require.Equal(t, held.Until().Add(-time.Hour), h.Holder.Since)
	require.WithinDuration(t, time.Now(), h.Holder.Since.Add(h.Holder.For), time.Minute)
	text := held.String()
	require.NotContains(t, fmt.Sprintf("%+v %+v", h, *h.Holder), text[strings.LastIndex(text, ".")+1:], "in a log")
	require.NoError(t, s.Locks.Break(background, h))
	require.NoError(t, testbed.Receive(t, next))
	s.over(t, held)
	require.ErrorIs(t, held.Release(background), txlock.ErrLost)
	err := s.Locks.Break(background, h)
	require.ErrorIs(t, err, txlock.ErrNotHeld)
	require.ErrorContains(t, err, s.name)
	h = shown()[0]
	require.Equal(t, "next", h.Holder.By)
	require.NoError(t, s.Locks.Break(background, h))
	require.Empty(t, shown())

	// A key that is hidden shows to who names it.
	hidden := testbed.NewSizedFixture(t, e, c, testbed.PoolSize, "", txlock.WithHiddenKeys())
	testbed.Take(t, hidden.Locks.Claim(s.name), "cart", time.Hour)
	require.Zero(t, s.Total(t, "SELECT COUNT(*) FROM "+s.Table()+"_claims WHERE holder = 'cart' AND name IS NOT NULL "+
		"AND claim = "+s.literal(held)))
	s.refused(t, "cart")
	h = shown()[0]
	require.Equal(t, s.name, h.Key)
	h.Key = "~1234…" // as who does not know it sees it
	require.NoError(t, hidden.Locks.Break(background, h))
	require.Empty(t, shown())
}
