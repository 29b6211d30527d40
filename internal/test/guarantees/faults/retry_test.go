package faults

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

func TestDeadlocksAreTriedAgain(t *testing.T) {
	t.Parallel()
	eachOpened(t, deadlocksTriedAgain[pgx.Tx], deadlocksTriedAgain[*sql.Tx])
}

// Two who lock two keys in opposite orders both commit, each once, in each of many rounds. The full
// tier has 10 000. The server looks for deadlocks at once, where it can be told to.
func deadlocksTriedAgain[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	options := servers.Options{}
	if e.Postgres {
		options.Settings = []string{"--deadlock_timeout=5ms"}
	}
	_, f := own(t, e, c, options)
	if f == nil {
		return
	}
	table := f.MakeTable(t, "id varchar(20) primary key")
	rounds := tier.Pick(20, 50, 10_000)
	for round := range rounds {
		var group errgroup.Group
		for i, keys := range [][]string{{"a", "b"}, {"b", "a"}} {
			insert := fmt.Sprintf("INSERT INTO %s VALUES ('%d.%d')", table, i, round)
			group.Go(func() error {
				return f.Locks.Mutex(f.Key(keys[0])).Retry(5).Do(background, func(ctx context.Context, tx Tx) error {
					if err := f.Exec(ctx, tx, insert); err != nil {
						return err
					}
					return f.Locks.Mutex(f.Key(keys[1])).Do(ctx, func(context.Context, Tx) error { return nil })
				})
			})
		}
		require.NoError(t, group.Wait(), "round %d", round)
	}
	require.Equal(t, 2*rounds, f.Total(t, "SELECT COUNT(*) FROM "+table))
	f.Free(t, f.Key("a"), f.Key("b"))
}
