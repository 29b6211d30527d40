package guarantees

import (
	"context"
	"encoding/hex"
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
	f, _ := testbed.NewFixtureWithTable(t, e, c, txlock.WithSlots(64))
	far, _ := testbed.NewFixtureWithTable(t, e, c, txlock.WithSlots(64))
	require.NoError(t, f.Locks.Install(background))
	require.NoError(t, far.Locks.Install(background))
	s := seat[Tx]{f, "seat", f.Locks.Claim("seat"), f.MakeTable(t, "id int primary key, cart varchar(100)")}
	held := s.take(t, "victim")
	elsewhere, err := far.Locks.Claim("seat").TryTake(background, "victim", time.Hour)
	require.NoError(t, err)
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
	before, err := s.claim.State(background)
	require.NoError(t, err)
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
				_, err := guessed.Extend(ctx, time.Minute)
				require.ErrorIs(t, err, txlock.ErrLost)
				require.ErrorIs(t, guessed.Release(ctx), txlock.ErrLost)
				return nil
			}))
		})
	}
	state, err := s.claim.State(background)
	require.NoError(t, err)
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
