package anydriver

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// An Exec whose context ends while the server runs a statement ends with it, and is known not to
// have committed.
func TestExecEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		for _, o := range Postgres {
			if e.Kind != servers.Postgres18 {
				continue
			}
			t.Run(o.Name, func(t *testing.T) {
				f := testbed.NewFixture(t, e, testbed.SQLOnPool(o.Name, o.Open, onPostgres))
				m := f.Locks.Mutex(f.Key("a"))
				_, err := m.Exec(background, txlock.Statement{SQL: "SELECT 1"}) // connects
				require.NoError(t, err)
				for _, sleep := range []string{"SELECT pg_sleep(3)", "SELECT pg_sleep(15)"} {
					took := time.Hour
					for run := 0; run < 3 && took > time.Second; run++ { // a busy machine makes some late
						ctx, cancel := context.WithTimeout(background, 200*time.Millisecond)
						start := time.Now()
						_, err := m.Exec(ctx, txlock.Statement{SQL: sleep})
						took = time.Since(start)
						cancel()
						require.ErrorIs(t, err, context.DeadlineExceeded)
						require.NotErrorIs(t, err, txlock.ErrUnknown)
						f.Free(t, f.Key("a"))
					}
					require.Less(t, took, time.Second)
				}
			})
		}
	}
}
