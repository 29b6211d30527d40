package guarantees

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

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
		require.ErrorContains(t, testbed.ErrorOf(bad.Leader(background)), text)
	}
	require.ErrorContains(t, f.Locks.Election(base, "me").Lead(background, nil), "nil work")
}

// ElectionInFullPool shows that a candidate whose pool has no second connection to give lets
// another lead, and that a pool of one connection is an error at once.
func ElectionInFullPool[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewSizedFixture(t, e, c, 2, "")
	alone := testbed.NewSizedFixture(t, e, c, 1, "")
	work := func(context.Context, int64) error { return nil }
	err := alone.Locks.Election(f.Key("full"), "alone").Lead(background, work)
	require.ErrorContains(t, err, "the pool has one connection")

	held := testbed.Lock(t, f.Locks.Mutex(f.Key("held")))
	me := candidacy(t, f.Locks.Election(f.Key("full"), "me"))
	f.Transactions(t, 2) // it has the seat
	other := testbed.NewFixture(t, e, c)
	rival := candidacy(t, other.Locks.Election(f.Key("full"), "rival"))
	leading := testbed.Receive(t, rival.terms)
	require.Empty(t, me.terms)
	testbed.Unlock(t, held)
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

// SoonAfterResigning shows that who waits leads within 20 ms after the work of a leader has ended,
// however it has. A busy machine is late: so several are measured, each beside a round trip. To
// lead takes four of them, and more where statements travel one by one.
func SoonAfterResigning[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const bound, most = 20 * time.Millisecond, 50
	f, other := testbed.NewFixture(t, e, c), testbed.NewFixture(t, e, c)
	name, trips := f.Key("soon"), time.Duration(c.Trips(4, 20))
	for way, resign := range map[string]func(*candidate, term){
		"the work returns":      func(_ *candidate, leading term) { leading.end <- nil },
		"the work fails":        func(_ *candidate, leading term) { leading.end <- errWork },
		"the context has ended": func(me *candidate, _ term) { me.leave() },
	} {
		least := time.Hour // beside what trips take
		for tries := 0; tries < most && least > bound; tries++ {
			me := candidacy(t, f.Locks.Election(name, "me"))
			leading := testbed.Receive(t, me.terms)
			rival := candidacy(t, other.Locks.Election(name, "rival"))
			other.Waiters(t, 1)
			begun := time.Now()
			require.NoError(t, f.Locks.Ping(background))
			ended := time.Now()
			resign(me, leading)
			next := testbed.Receive(t, rival.terms)
			least = min(least, next.begun.Sub(ended)-trips*ended.Sub(begun))
			require.Greater(t, next.number, leading.number)
			next.end <- nil
			require.NoError(t, testbed.Receive(t, rival.over))
			testbed.Receive(t, me.over)
		}
		require.LessOrEqual(t, least, bound, way)
	}
}

// Overtaken shows that a candidate that has the seat, and finds a later term in the record than its
// own, does not begin its work.
func Overtaken[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	log := &testbed.Logbook{}
	f := testbed.NewSizedFixture(t, e, c, testbed.PoolSize, "", log.Option())
	me := f.Locks.Election(f.Key("overtaken"), "me")
	require.NoError(t, me.Lead(background, func(context.Context, int64) error { return nil }))
	record := "UPDATE " + testbed.TableOf(e, "txlock_slots_leaders") + " SET identity = 'later', term = term + %s " +
		"WHERE part = 'record' AND hash = '" + testbed.HashOf(f.Key("overtaken")) + "'"
	f.AsAdmin(t, strings.ReplaceAll(record, "%s", "4611686018427387904"))
	late := candidacy(t, me)
	eventually.True(t, "it has campaigned three times", func() bool {
		said := 0
		for _, line := range log.Records(t) {
			if strings.Contains(line["error"].(string), "later term") {
				said++
			}
		}
		return said >= 3
	})
	require.Empty(t, late.terms)
	require.ErrorIs(t, testbed.ErrorOf(me.Leader(background)), txlock.ErrNoLeader)
	f.AsAdmin(t, strings.ReplaceAll(record, "%s", "-4611686018427387904"))
	leading := testbed.Receive(t, late.terms)
	leading.end <- nil
	require.NoError(t, testbed.Receive(t, late.over))
}

// InspectElections shows that Inspect shows who leads an election and who campaigns, and that Break
// ends the leader.
func InspectElections[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, there := testbed.NewFixture(t, e, c), testbed.NewFixture(t, e, c)
	name := f.Key("election")
	require.Empty(t, electionsIn(f.Look(t, name)))
	me := candidacy(t, f.Locks.Election(name, "me"))
	mine := testbed.Receive(t, me.terms)
	candidacy(t, f.Locks.Election(name, "behind me"))
	rival := candidacy(t, there.Locks.Election(name, "rival"))
	there.Waiters(t, 1)

	var h txlock.Holding
	eventually.True(t, "the leader and who campaigns", func() bool {
		shown := electionsIn(f.Look(t, name))
		require.Len(t, shown, 1)
		h = shown[0]
		return h.Holder != nil && h.Holder.ID != "" && len(h.Waiters) == 1
	})
	require.Equal(t, name, h.Key)
	require.NotEqual(t, h.Holder.ID, h.Waiters[0].ID)
	require.Equal(t, os.Getpid(), h.Waiters[0].Process)
	if f.Tells {
		require.Equal(t, os.Getpid(), h.Holder.Process)
	}
	require.NoError(t, mine.ctx.Err())
	require.NoError(t, f.Locks.Break(background, h))
	<-mine.ctx.Done()
	require.ErrorIs(t, context.Cause(mine.ctx), txlock.ErrLost)
	require.Greater(t, testbed.Receive(t, rival.terms).number, mine.number)
	require.ErrorIs(t, f.Locks.Break(background, h), txlock.ErrNotHeld)
}

func electionsIn(holdings []txlock.Holding) (elections []txlock.Holding) {
	for _, h := range holdings {
		if h.Column == "election" {
			elections = append(elections, h)
		}
	}
	return elections
}

// ElectionTraced shows that a tracer is told of each term.
func ElectionTraced[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, other, s := traced(t, e, c)
	me := f.Locks.Election(f.Key("traced"), "me")
	require.Equal(t, errWork, me.Lead(background, func(ctx context.Context, _ int64) error {
		require.Equal(t, 1, ctx.Value(storyKey{}))
		call := s.asked(t)
		require.Equal(t, "Lead election", call.Name+" "+call.Column)
		require.Equal(t, []string{f.Key("traced")}, call.Names)
		s.take(t, "1 asked by Lead", "1 answered")
		return errWork
	}))
	require.Equal(t, []error{errWork}, s.take(t, "1 ended: error"))
	require.NoError(t, me.Lead(background, func(context.Context, int64) error { return nil }))
	s.take(t, "1 asked by Lead", "1 answered", "1 ended")
	require.Panics(t, func() {
		_ = me.Lead(background, func(context.Context, int64) error { panic("boom") })
	})
	told := s.take(t, "1 asked by Lead", "1 answered", "1 ended: error")
	require.Equal(t, txlock.ErrPanicked, told[2])

	first := candidacy(t, other.Locks.Election(f.Key("traced"), "first"))
	testbed.Receive(t, first.terms)
	second := candidacy(t, me)
	f.Waiters(t, 1)
	second.leave()
	require.ErrorIs(t, testbed.Receive(t, second.over), context.Canceled)
	s.take(t, "1 asked by Lead", "1 answered: error")
	first.leave()
	require.Error(t, testbed.Receive(t, first.over))

	third := candidacy(t, me)
	lost := testbed.Receive(t, third.terms)
	s.take(t, "1 asked by Lead", "1 answered")
	f.KillSessions(t)
	testbed.Receive(t, lost.ctx.Done())
	again := testbed.Receive(t, third.terms)
	lines, told := s.all(t, 3)
	require.Equal(t, []string{"1 ended: error", "1 asked by Lead"}, lines[:2])
	require.ErrorIs(t, told[0], txlock.ErrLost)
	for led := false; !led; { // more terms, if that one had a connection that was killed as well
		again.end <- nil
		select {
		case err := <-third.over:
			require.NoError(t, err)
			led = true
		case again = <-third.terms:
		case <-time.After(eventually.Patience):
			require.Fail(t, "Lead does not return")
		}
	}
	_, told = s.all(t, 1)
	require.NoError(t, told[len(told)-1])
}
