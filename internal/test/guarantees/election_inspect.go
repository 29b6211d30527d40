package guarantees

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

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
