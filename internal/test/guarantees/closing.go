package guarantees

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// Closing shows that Close ends what is held and what waits, of every kind, and that later calls
// are errors.
func Closing[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, waiting := crowded(t, e, c, testbed.PoolSize, "", txlock.WithQueue(1))
	other := testbed.NewFixture(t, e, c)
	m := f.Locks.Mutex(f.Key("lock"))
	lock := testbed.Lock(t, m)
	closed := make(chan error, 10) // of who waits in the process
	for i := range cap(closed) {
		go func() { closed <- lockOrDo(m, i%2 == 0, func() { t.Error("it was served") }) }()
	}
	waiting.waits(t, cap(closed))

	working, atServer := newOrders(t, f), &orders[Tx]{Fixture: f, key: f.Key("awaited")}
	atServer.Combined = txlock.Combine(atServer.lock, atServer.work)
	working.during = func(ctx context.Context, _ Tx, _ []int) error { <-ctx.Done(); return nil }
	batch := []*placed{working.place(t, 1)}
	working.works(t)
	batch = append(batch, working.place(t, 2), working.place(t, 3))
	held := testbed.Lock(t, other.Locks.Mutex(atServer.key))
	batch = append(batch, atServer.place(t, 4))
	f.Waiters(t, 1)
	batch = append(batch, atServer.place(t, 5))

	leads := candidacy(t, f.Locks.Election(f.Key("election"), "leads"))
	leading := testbed.Receive(t, leads.terms)
	inProcess := candidacy(t, f.Locks.Election(f.Key("election"), "waits in the process"))
	testbed.Receive(t, candidacy(t, other.Locks.Election(f.Key("elsewhere"), "leads elsewhere")).terms)
	elsewhere := candidacy(t, f.Locks.Election(f.Key("elsewhere"), "waits at the server"))
	f.Waiters(t, 2)

	done, _ := f.StartWork(f.Key("do"), working.table)
	begun := make(chan struct{})
	foreign := testbed.Go(func() error {
		return f.Locks.Mutex(f.Key("foreign")).Do(background, func(ctx context.Context, _ Tx) error {
			close(begun)
			<-ctx.Done()
			return fmt.Errorf("of another: %w", txlock.ErrLost)
		})
	})
	testbed.Receive(t, begun)
	begin := time.Now()
	require.NoError(t, f.Locks.Close())
	require.Less(t, time.Since(begin), 20*time.Second)
	require.ErrorIs(t, testbed.Receive(t, foreign), txlock.ErrClosed)
	require.ErrorIs(t, testbed.Receive(t, done), txlock.ErrLost)
	require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrLost)
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	for range cap(closed) {
		require.ErrorIs(t, testbed.Receive(t, closed), txlock.ErrClosed)
	}
	testbed.Receive(t, leading.ctx.Done())
	require.ErrorIs(t, context.Cause(leading.ctx), txlock.ErrLost)
	for _, c := range []*candidate{leads, inProcess, elsewhere} {
		require.ErrorContains(t, testbed.Receive(t, c.over), "closed")
	}
	require.ErrorContains(t, batch[0].fails(t, txlock.ErrLost), "closed")
	for _, p := range batch[1:] {
		require.ErrorContains(t, p.fails(t, nil), "closed")
	}
	require.Equal(t, [][]int{{1}}, working.worked())
	require.Empty(t, atServer.worked())
	f.Waiters(t, 0)
	testbed.Unlock(t, held)
	other.Free(t, f.Key("lock"), f.Key("do"), atServer.key)
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+working.table))

	require.ErrorContains(t, testbed.ErrorOf(m.Lock(background)), "closed")
	require.ErrorContains(t, testbed.ErrorOf(working.Do(background, 6)), "closed")
	require.ErrorContains(t, testbed.ErrorOf(f.Locks.Election(f.Key("election"), "late").Leader(background)), "closed")
	require.ErrorContains(t, f.Locks.Election(f.Key("election"), "late").Lead(background, nil), "closed")
	require.ErrorContains(t, f.Locks.Install(background), "closed")
	require.NoError(t, f.Locks.Close(), "a second Close is harmless")
}
