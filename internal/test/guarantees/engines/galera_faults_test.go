package engines

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// Who hears late that the lock is granted does not know whether the others have dropped the node
// since. A Do commits, or does not.
func anAnswerThatIsOld(t *testing.T, g *cluster) {
	e, err := testbed.NewEngine(g.Servers()[0])
	require.NoError(t, err)
	defer e.Admin.Close()
	proxy := testbed.Proxy(t, e)
	dsn := strings.Replace(g.Servers()[0].DSN, e.Address(), proxy.Addr(), 1)
	locks := testbed.MySQLSQL[1].Locker(t, dsn, 4, txlock.WithLease(4*time.Second))
	lock := testbed.Lock(t, locks.Mutex("late"))
	testbed.Unlock(t, lock)
	proxy.Delay(320 * time.Millisecond)
	_, err = locks.Mutex("late").Lock(background)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	require.ErrorContains(t, err, "too long for a lease of 4s")
	require.NoError(t, locks.Mutex("late").Do(background, idle[*sql.Tx]))
}

// A node that is in no cluster takes nothing, and every call says so. It goes on when it is back.
func aNodeThatHasLeft(t *testing.T, g *cluster) {
	var others string
	require.NoError(t, g.db[2].QueryRow("SELECT @@wsrep_cluster_address").Scan(&others))
	g.exec(t, 2, "SET GLOBAL wsrep_cluster_address = ''")
	locks := g.locks[2]
	_, lock := locks.Mutex("left").Lock(background)
	_, claim := locks.Claim("left").TryTake(background, "me", time.Minute)
	for call, err := range map[string]error{
		"Lock": lock, "Claim": claim, "Check": locks.Check(background), "Ping": locks.Ping(background),
		"Do": locks.Mutex("left").Do(background, idle[*sql.Tx]),
	} {
		require.ErrorContains(t, err, "1047", call)
		require.ErrorContains(t, err, "this node of a Galera cluster takes no statements", call)
	}
	g.exec(t, 2, "SET GLOBAL wsrep_cluster_address = '"+others+"'")
	eventually.True(t, "the node is back", func() bool { return locks.Ping(background) == nil })
	require.NoError(t, locks.Check(background))
}

// A node that is cut off from the others commits nothing, and the holder there is told. The others
// go on.
func aNodeCutOff(t *testing.T, g *cluster) {
	before := g.value(t, 0, 3)
	lock := testbed.Lock(t, g.locks[0].Mutex("cut"))
	entered, cut, worked := make(chan bool), make(chan bool), make(chan error, 1)
	go func() {
		worked <- g.locks[0].Mutex("cut work").Do(background, func(ctx context.Context, tx *sql.Tx) error {
			err := increment(ctx, tx, 3)
			close(entered)
			for { // so that the lease does not end it
				select {
				case <-cut:
					return err
				case <-time.After(100 * time.Millisecond):
					_, _ = tx.ExecContext(ctx, "SELECT 1")
				}
			}
		})
	}()
	testbed.Receive(t, entered)
	start := time.Now()
	told := make(chan time.Duration, 1)
	context.AfterFunc(lock.Context(), func() { told <- time.Since(start) })
	granted := make(chan time.Duration, 1)
	go func() {
		other, err := g.locks[1].Mutex("cut").Lock(background)
		granted <- time.Since(start)
		if err == nil {
			err = other.Unlock(background)
		}
		if err != nil {
			t.Error(err)
		}
	}()
	require.NoError(t, g.End(background, servers.Isolated))
	close(cut)
	err := testbed.Receive(t, worked)
	testbed.ErrorIs(t, err, txlock.ErrLost, txlock.ErrUnknown)
	holder, others := testbed.Receive(t, told), testbed.Receive(t, granted)
	t.Logf("the holder is told after %v, the majority grants after %v", holder, others)
	require.Less(t, holder, others)
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	_, err = g.locks[0].Mutex("cut").TryLock(background)
	require.ErrorContains(t, err, "does not reach the majority")

	require.NoError(t, g.locks[1].Mutex("cut work").Do(background, func(ctx context.Context, tx *sql.Tx) error {
		return increment(ctx, tx, 3)
	}))
	require.NoError(t, g.Promote(background))
	require.NoError(t, g.Rejoin(background))
	require.Equal(t, before+1, g.value(t, 0, 3))
	lock = testbed.Lock(t, g.locks[0].Mutex("cut"))
	testbed.Unlock(t, lock)
}
