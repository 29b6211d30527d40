package inspection

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects"
)

// Waiters of both kinds are in the order of the queue, also where the times are off.
func TestMixedWaiters(t *testing.T) {
	now := time.Now()
	lock := func(session string, shared, waiting bool, place int, since time.Duration) rowLock {
		party := &dialects.Party{Session: session, Since: now.Add(since)}
		return rowLock{session: session, party: party, shared: shared, waiting: waiting, place: place}
	}
	order := func(locks ...rowLock) (sessions []string) {
		for _, waiter := range state(row{}, locks).Waiters {
			sessions = append(sessions, waiter.Session)
		}
		return sessions
	}
	for _, holders := range [][]rowLock{
		{lock("r1", true, false, 0, 0), lock("r2", true, false, 0, 0)}, {lock("h", false, false, 0, 0)},
	} {
		held, shares := len(holders), 0 // in front of who wants it alone, and of who shares
		if !holders[0].shared {
			shares = 1
		}
		require.Equal(t, []string{"w1", "s1", "s2", "w2", "s3"}, order(append(holders,
			lock("s3", true, true, shares+2, 1), lock("s2", true, true, shares+1, 5),
			lock("w2", false, true, held+3, 2), lock("s1", true, true, shares+1, 4),
			lock("w1", false, true, held, 9))...))
	}
}
