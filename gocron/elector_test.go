package txlockgocron_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"testing"

	"github.com/go-co-op/gocron/v2"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	txlockgocron "github.com/txlock/txlock/gocron"
	"github.com/txlock/txlock/internal/test/eventually"
)

// member is an instance whose scheduler has an Elector.
type member struct {
	*instance
	elector *txlockgocron.Elector
	asked   chan error // the answers of IsLeader
}

// IsLeader implements gocron.Elector.
func (m *member) IsLeader(ctx context.Context) error {
	err := m.elector.IsLeader(ctx)
	m.asked <- err
	return err
}

// elect starts an instance that campaigns.
func (e *engine) elect(t *testing.T, election string) *member {
	t.Helper()
	m := &member{instance: &instance{engine: e, label: newLabel(), log: &journal{}}, asked: make(chan error, 1000)}
	require.NoError(t, e.open(m.label, 0,
		func(locks *txlock.Locker[pgx.Tx]) error { return electOn(m, locks, election) },
		func(locks *txlock.Locker[*sql.Tx]) error { return electOn(m, locks, election) }))
	m.run(t, gocron.WithDistributedElector(m))
	return m
}

func electOn[Tx any](m *member, locks *txlock.Locker[Tx], election string) (err error) {
	m.elector, err = txlockgocron.NewElector(locks.Election(election, m.label),
		txlockgocron.WithLogger(slog.New(slog.NewTextHandler(m.log, nil))))
	m.close = func() error { return errors.Join(m.elector.Close(), locks.Close()) }
	return err
}

func (m *member) leads(t *testing.T) {
	t.Helper()
	eventually.True(t, "it leads", func() bool { return m.elector.IsLeader(context.Background()) == nil })
}

// Of two schedulers, the one whose instance leads runs all jobs. The other takes over when the
// leader closes, or loses its session.
func TestElector(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) {
		election := newLabel()
		jobs := []string{newLabel(), newLabel()}
		first := e.elect(t, election)
		first.leads(t)
		second := e.elect(t, election)
		ended := make(chan error, 100)
		for _, m := range []*member{first, second} {
			m.jobs = len(jobs)
			for _, job := range jobs {
				require.NoError(t, m.add(job, everyMinute(), func(ctx context.Context) {
					if m == first && m.elector.Context(ctx).Err() != nil {
						ended <- context.Cause(m.elector.Context(ctx))
					}
				}))
			}
		}
		minute := func(leader, other *member) {
			t.Helper()
			require.NoError(t, errors.Join(first.tick(), second.tick()))
			for range jobs {
				require.NoError(t, receive(t, leader.asked))
				require.ErrorIs(t, receive(t, other.asked), txlock.ErrNotHeld)
			}
		}
		ran := func(ticks int) {
			t.Helper()
			for _, job := range jobs {
				eventually.True(t, "the job has run", func() bool {
					runs, at := e.runs(t, job)
					require.LessOrEqual(t, runs, ticks)
					return runs == ticks && at == ticks
				})
			}
		}
		for tick := range 3 {
			minute(first, second)
			ran(tick + 1)
		}
		require.Empty(t, ended)
		former := first.elector.Term()
		require.Positive(t, former)
		require.Zero(t, second.elector.Term())
		ctx := first.elector.Context(context.Background())
		require.NoError(t, ctx.Err())
		require.ErrorIs(t, context.Cause(second.elector.Context(context.Background())), txlock.ErrNotHeld)

		e.killSessions(t, first.label)
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), txlock.ErrLost)
		eventually.True(t, "the other leads", func() bool {
			if first.elector.IsLeader(context.Background()) == nil { // it was back before the other had begun to wait
				e.killSessions(t, first.label)
			}
			return second.elector.IsLeader(context.Background()) == nil
		})
		require.Greater(t, second.elector.Term(), former)
		minute(second, first)
		ran(4)

		e.transactions(t, first.label, 1) // it campaigns again
		require.NoError(t, second.elector.Close())
		first.leads(t)
		minute(first, second)
		ran(5)
		require.NoError(t, second.elector.Close())
	})
}

func TestElectorRefuses(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) {
		_, err := txlockgocron.NewElector[int](nil)
		require.ErrorContains(t, err, "nil election")
		_, err = txlockgocron.NewElector(new(txlock.Election[int]), txlockgocron.WithPrefix("p"))
		require.ErrorContains(t, err, "WithLogger alone")
		bad := e.elect(t, "") // an empty name
		eventually.True(t, "the reason is told", func() bool {
			return bad.elector.IsLeader(context.Background()) != nil && bad.log.String() != ""
		})
		require.Contains(t, bad.log.String(), "is empty")
		require.ErrorContains(t, bad.elector.IsLeader(context.Background()), "is empty")
	})
}
