package guarantees

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

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
	_, err := me.Leader(background)
	require.ErrorIs(t, err, txlock.ErrNoLeader)
	f.AsAdmin(t, strings.ReplaceAll(record, "%s", "-4611686018427387904"))
	leading := testbed.Receive(t, late.terms)
	leading.end <- nil
	require.NoError(t, testbed.Receive(t, late.over))
}
