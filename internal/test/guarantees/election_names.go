package guarantees

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// ElectionNames shows that elections of different names share nothing, whatever the names are, and
// that identities come back as they were given.
func ElectionNames[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	base := f.Key("name")
	long := strings.Repeat("x", 10_000)
	elections := map[string]string{ // name to identity
		base: "a", strings.ToUpper(base): "A", base + " ": "with a space", base + "\x00": "it's",
		base + "\xff": `"q" \`,
		base + "é":    "é\n\u2028", base + "e\u0301": strings.Repeat("i", 255), base + long: "日本",
		base + long + "y": "%s",
		base + "=20":      "=20", base + "%20": " leading and trailing ",
	}
	var lead func(names []string)
	lead = func(names []string) { // all at once, one in the other
		if len(names) == 0 {
			for name, identity := range elections {
				leader, err := f.Locks.Election(name, "onlooker").Leader(background)
				require.NoError(t, err, "%.100q", name)
				require.Equal(t, identity, leader.Identity)
			}
			return
		}
		ran := false
		require.NoError(t, f.Locks.Election(names[0], elections[names[0]]).Lead(background,
			func(context.Context, int64) error {
				ran = true
				lead(names[1:])
				return nil
			}))
		require.True(t, ran)
	}
	var names []string
	for name := range elections {
		names = append(names, name)
	}
	lead(names)

	work := func(context.Context, int64) error { t.Error("the work must not run"); return nil }
	for text, bad := range map[string]*txlock.Election[Tx]{
		"the name of the election is empty": f.Locks.Election("", "me"),
		"the identity \"\" has 0 bytes":     f.Locks.Election(base, ""),
		"has 256 bytes":                     f.Locks.Election(base, strings.Repeat("i", 256)),
		"UTF-8":                             f.Locks.Election(base, "\xff"),
		"without NUL":                       f.Locks.Election(base, "a\x00"),
	} {
		require.ErrorContains(t, bad.Lead(background, work), text)
		_, err := bad.Leader(background)
		require.ErrorContains(t, err, text)
	}
	require.ErrorContains(t, f.Locks.Election(base, "me").Lead(background, nil), "nil work")
}

// ElectionInstalled shows that elections say what is missing, and go on when it is there.
func ElectionInstalled[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewFixtureWithTable(t, e, c, txlock.WithSlots(4))
	me := f.Locks.Election("scheduler", "me")
	work := func(context.Context, int64) error { return nil }
	missing := func() {
		t.Helper()
		require.ErrorIs(t, me.Lead(background, work), txlock.ErrNotInstalled)
		_, err := me.Leader(background)
		require.ErrorIs(t, err, txlock.ErrNotInstalled)
		require.ErrorContains(t, err, "run install")
	}
	missing()
	require.NoError(t, f.Locks.Install(background))
	require.NoError(t, me.Lead(background, work))
	_, err := me.Leader(background)
	require.ErrorIs(t, err, txlock.ErrNoLeader)
	f.AsAdmin(t, "DROP TABLE "+table+"_leaders") // as before elections came
	missing()
	f.Free(t, "k")
	require.NoError(t, f.Locks.Install(background))
	require.NoError(t, f.Locks.Election("another", "x").Lead(background, work)) // has the rows' numbers now
	require.NoError(t, me.Lead(background, func(ctx context.Context, term int64) error {
		leader, err := me.Leader(ctx)
		require.NoError(t, err)
		require.Equal(t, term, leader.Term)
		_, err = f.Locks.Election("another", "x").Leader(ctx)
		require.ErrorIs(t, err, txlock.ErrNoLeader)
		return nil
	}))
}

// ElectionInFullPool shows that a candidate whose pool has no second connection to give lets
// another lead, and that a pool of one connection is an error at once.
func ElectionInFullPool[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewSizedFixture(t, e, c, 2, "")
	alone := testbed.NewSizedFixture(t, e, c, 1, "")
	work := func(context.Context, int64) error { return nil }
	err := alone.Locks.Election(f.Key("full"), "alone").Lead(background, work)
	require.ErrorContains(t, err, "the pool has one connection")

	held, err := f.Locks.Mutex(f.Key("held")).Lock(background)
	require.NoError(t, err)
	me := candidacy(t, f.Locks.Election(f.Key("full"), "me"))
	f.Transactions(t, 2) // it has the seat
	other := testbed.NewFixture(t, e, c)
	rival := candidacy(t, other.Locks.Election(f.Key("full"), "rival"))
	leading := testbed.Receive(t, rival.terms)
	require.Empty(t, me.terms)
	require.NoError(t, held.Unlock(background))
	eventually.Every(t, "it waits again", testbed.PollEvery, func() bool {
		select {
		case err := <-me.over:
			require.NoError(t, err, "it has given up")
		default:
		}
		return f.Waiting(t) > 0
	})
	leading.end <- nil
	require.Greater(t, testbed.Receive(t, me.terms).number, leading.number)
}
