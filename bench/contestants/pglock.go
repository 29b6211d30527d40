package contestants

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"cirello.io/pglock"

	"github.com/txlock/txlock/bench/contest"
	pools "github.com/txlock/txlock/bench/database"
)

const pglockTable = "bench_pglock"

func init() {
	contest.Register(contest.Contestant{
		Name: "pglock", Group: contest.Libraries, Server: contest.PostgreSQL, Waits: contest.Polling, Leased: true,
		Remark: "polls once per lease; heartbeat every quarter of it; does not report a lock that was lost before " +
			"the unlock",
		Prepare: preparePglock,
		Open: func(ctx context.Context, env contest.Environment) (contest.Client, error) {
			return openPglock(ctx, env)
		},
	})
}

// pglockClient is cirello.io/pglock on lib/pq, the driver that it requires.
type pglockClient struct {
	*sql.DB
	locks *pglock.Client
}

func openPglock(ctx context.Context, env contest.Environment) (*pglockClient, error) {
	db, err := sql.Open("postgres", env.Address())
	if err != nil {
		return nil, err
	}
	if err := pools.Fill(ctx, db, env.Contenders); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	locks, err := pglock.New(db, pglock.WithCustomTable(pglockTable), pglock.WithLeaseDuration(env.Lease),
		pglock.WithHeartbeatFrequency(env.Lease/4)) // the ratio of the defaults: 5 of 20 seconds
	if err != nil {
		return nil, fmt.Errorf("pglock: %w", err)
	}
	return &pglockClient{DB: db, locks: locks}, nil
}

func preparePglock(ctx context.Context, env contest.Environment, _ []string) error {
	env.Contenders = 1
	client, err := openPglock(ctx, env)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.ExecContext(ctx, "DROP TABLE IF EXISTS "+pglockTable); err != nil {
		return err
	}
	return client.locks.CreateTable()
}

// Hold implements contest.Client. It nests the locks with the library's Do, because only Do ends
// the context of the work when the heartbeat finds that the lock is lost.
func (c *pglockClient) Hold(ctx context.Context, keys []string, work contest.Work) error {
	if len(keys) == 0 {
		return work(ctx, nil)
	}
	return c.locks.Do(ctx, keys[0], func(ctx context.Context, _ *pglock.Lock) error {
		return c.Hold(ctx, keys[1:], work)
	})
}
