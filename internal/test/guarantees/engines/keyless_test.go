package engines

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

// Behind a pooler that takes no cancel request, like RDS Proxy, a cancelled wait ends as elsewhere.
func TestCancelWithoutKey(t *testing.T) {
	t.Parallel()
	eachKeyless(t, func(t *testing.T, e *testbed.Engine) {
		keyless, _ := e.Keyless(t, 20)
		for _, c := range testbed.PostgresPgx {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				guarantees.CancelledWait(t, keyless, c)
			})
		}
		t.Run("sql.DB", func(t *testing.T) {
			t.Parallel()
			guarantees.CancelledWait(t, keyless, testbed.PostgresSQL[0])
		})
	})
}

func eachKeyless(t *testing.T, test func(*testing.T, *testbed.Engine)) {
	for _, e := range testbed.Engines {
		if e.Kind == servers.Postgres18 {
			test(t, e)
		}
	}
}

// A cancelled wait keeps its connection there, but on a machine that is too busy to send the cancel
// in time, and no cancel hits who has the server's session next.
func TestCancelsHitNoNeighbour(t *testing.T) {
	t.Parallel()
	eachKeyless(t, func(t *testing.T, e *testbed.Engine) {
		const waiters, neighbours = 4, 4
		cancels := tier.Pick(20, 100, 10_000)
		holder := testbed.NewFixture(t, e, testbed.PgxOpened())
		key := holder.Key("held")
		held, err := holder.Locks.Mutex(key).Lock(background)
		require.NoError(t, err)
		keyless, pooler := e.Keyless(t, 2*waiters) // for more clients than these
		f := testbed.NewSizedFixture(t, keyless, testbed.PgxOpened(), 2*waiters, "", txlock.WithQueue(waiters))
		ctx, stop := context.WithCancel(background)
		var busy, all sync.WaitGroup
		for range neighbours {
			conn, err := pgx.Connect(background, f.DSNFor("neighbour", "", nil))
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close(background) })
			busy.Go(func() {
				for ctx.Err() == nil {
					if _, err := conn.Exec(background, "SELECT pg_sleep(0.001)"); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		f.Warm(t, 2*waiters-1)
		logins := pooler.Logins()
		for range waiters {
			all.Go(func() {
				for range cancels / waiters {
					wait, cancel := context.WithCancel(background)
					go func() {
						<-time.After(time.Duration(rand.IntN(10_000)) * time.Microsecond)
						cancel()
					}()
					if _, err := f.Locks.Mutex(key).Lock(wait); !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		stop()
		busy.Wait()
		// Where no connection comes in time to cancel from, a wait loses its own.
		require.Less(t, pooler.Logins()-logins, cancels/4, "waits have kept their connections")
		require.NoError(t, held.Unlock(background))
	})
}
