package faults

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

func TestLeaderInOutage(t *testing.T) {
	testbed.Lines(
		func(e *testbed.Engine, c testbed.Client[pgx.Tx]) { onMortal(t, e, c, leaderInOutage) },
		func(e *testbed.Engine, c testbed.Client[*sql.Tx]) { onMortal(t, e, c, leaderInOutage) })
}

// A server is killed and restarted. The leader is told, and it and the others wait until the server
// is back: then one of them leads, with a higher term.
func leaderInOutage[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewSizedFixture(t, e, c, testbed.PoolSize, "", txlock.WithLease(time.Hour))
	require.NoError(t, f.Locks.Install(background))
	type term struct {
		number int64
		ctx    context.Context
	}
	terms := make(chan term, 100)
	ctx, cancel := context.WithCancel(background)
	over := make(chan error, 2)
	for _, name := range []string{"one", "another"} {
		go func() {
			over <- f.Locks.Election(f.Key("outage"), name).Lead(ctx, func(ctx context.Context, number int64) error {
				terms <- term{number, ctx}
				<-ctx.Done()
				return nil
			})
		}()
	}
	first := testbed.Receive(t, terms)
	require.NoError(t, e.Kill())
	testbed.Receive(t, first.ctx.Done())
	require.ErrorIs(t, context.Cause(first.ctx), txlock.ErrLost)
	_, err := f.Locks.Election(f.Key("outage"), "onlooker").Leader(background)
	require.Error(t, err)
	require.NotErrorIs(t, err, txlock.ErrNoLeader, "nobody knows")
	require.Empty(t, over, "they wait for the server")
	require.NoError(t, e.Restart(background))
	next := testbed.Receive(t, terms)
	require.Greater(t, testbed.RunOf(next.number), testbed.RunOf(first.number))
	back(t, e)
	require.NoError(t, next.ctx.Err())
	cancel()
	for range 2 {
		if err := testbed.Receive(t, over); err != nil { // nil: of the one that led
			require.ErrorIs(t, err, context.Canceled)
		}
	}
}

// A server that only reads, as a replica does, cannot say that nobody leads: its locks are not the
// primary's.
func TestLeaderOnReplica(t *testing.T) {
	for _, e := range testbed.Engines {
		if e.Postgres || strings.HasPrefix(e.Origin, "given") {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			own := testbed.Mortal(t, e.Kind)
			for _, c := range testbed.MySQLSQL {
				f := testbed.NewFixture(t, own, c)
				election := f.Locks.Election(f.Key("replica"), "me")
				require.NoError(t, election.Lead(background, func(ctx context.Context, _ int64) error {
					own.AsAdmin(t, "SET GLOBAL read_only = 1")
					leader, err := election.Leader(ctx)
					require.NoError(t, err)
					require.Equal(t, "me", leader.Identity)
					return nil
				}))
				_, err := election.Leader(background)
				require.ErrorContains(t, err, "only reads", c.Name)
				require.NotErrorIs(t, err, txlock.ErrNoLeader)
				own.AsAdmin(t, "SET GLOBAL read_only = 0")
				_, err = election.Leader(background)
				require.ErrorIs(t, err, txlock.ErrNoLeader)
			}
		})
	}
}
