package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// A cancel takes seconds to arrive, as on a machine that stalls, or through a pooler that must
// connect first. A nested wait waits for it: the transaction around it has more to lose.
func TestSlowCancel(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		if strings.HasPrefix(e.Origin, "given") {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			own := testbed.Mortal(t, e.Kind)
			switch {
			case !e.Postgres:
				slowCancel(t, own, testbed.MySQLOpened())
			case e.Kind.String() < "PostgreSQL 18":
				slowCancel(t, own, testbed.PgxOpened())
			default:
				slowCancel(t, own, testbed.PostgresSQL[0])
			}
		})
	}
}

func slowCancel[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewSizedFixture(t, e, c, 4, "")
	table := f.MakeTable(t, "id int primary key")
	holder, err := f.Locks.Mutex(f.Key("held")).Lock(background)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(background)
	done := make(chan error, 1)
	go func() {
		done <- f.Locks.Mutex(f.Key("outer")).Do(background, func(work context.Context, tx Tx) error {
			inner, stop := context.WithCancel(work)
			defer stop()
			defer context.AfterFunc(ctx, stop)()
			if _, err := f.Locks.Mutex(f.Key("held")).Lock(inner); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("the nested lock: %w", err)
			}
			return f.Exec(work, tx, "INSERT INTO "+table+" VALUES (1)")
		})
	}()
	f.Waiters(t, 1)
	require.NoError(t, e.Pause())
	cancel()
	time.Sleep(5 * time.Second / 2) // longer than a wait with nothing to lose would be interrupted
	require.NoError(t, e.Continue())
	require.NoError(t, testbed.Receive(t, done))
	require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table))
	require.NoError(t, holder.Unlock(background))
}
