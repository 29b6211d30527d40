package contestants

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txlock/txlock/bench/contest"
	pools "github.com/txlock/txlock/bench/database"
)

func init() {
	contest.Register(contest.Contestant{
		Name: "pg_advisory_lock", Group: contest.InSQL, Server: contest.PostgreSQL, Waits: contest.Queued,
		Parts:  contest.Standard | contest.Growth | contest.Crowd | contest.HotRow,
		Remark: "on a connection of its own; does not tell the work of a lost session",
		Open: func(ctx context.Context, env contest.Environment) (contest.Client, error) {
			pool, err := pools.Pool(ctx, env.Address, env.Contenders)
			return advisory{pool}, err
		},
	})
	for _, server := range []contest.Server{contest.MySQL, contest.MariaDB} {
		contest.Register(contest.Contestant{
			Name: fmt.Sprintf("GET_LOCK, %s", server), Group: contest.InSQL, Server: server, Waits: contest.Queued,
			Parts:  contest.Standard | contest.Growth | contest.Crowd | contest.HotRow,
			Remark: "on a connection of its own; does not tell the work of a lost session",
			Open: func(ctx context.Context, env contest.Environment) (contest.Client, error) {
				db, err := pools.SQL(ctx, server, env.Address, env.Contenders)
				return getLock{db}, err
			},
		})
	}
}

// hashed is the number of a key for a lock whose keys are numbers.
func hashed(key string) int64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key))
	return int64(hash.Sum64())
}

// advisory locks in a session of PostgreSQL, and keeps a connection for it.
type advisory struct{ pool *pgxpool.Pool }

// Hold implements contest.Client.
func (c advisory) Hold(ctx context.Context, keys []string, work contest.Work) error {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Release() // drops the connection if it was closed
	return contest.HoldEach(ctx, keys, func(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
		id := hashed(key)
		if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", id); err != nil {
			return nil, nil, fmt.Errorf("pg_advisory_lock of %q: %w", key, err)
		}
		return ctx, func() error { return unlockAdvisory(ctx, conn, key, id) }, nil
	}, work)
}

func unlockAdvisory(ctx context.Context, conn *pgxpool.Conn, key string, id int64) error {
	ctx, cancel := contest.Unlocking(ctx)
	defer cancel()
	var unlocked bool
	err := conn.QueryRow(ctx, "SELECT pg_advisory_unlock($1)", id).Scan(&unlocked)
	if err == nil && !unlocked {
		err = errLost
	}
	if err != nil {
		// The session may still be locked. Its next user would lock it a second time.
		return errors.Join(fmt.Errorf("pg_advisory_unlock of %q: %w", key, err), conn.Conn().Close(ctx))
	}
	return nil
}

// Close implements contest.Client.
func (c advisory) Close() error {
	c.pool.Close()
	return nil
}

// getLock locks in a session of MySQL or MariaDB, and keeps a connection for it.
type getLock struct{ *sql.DB }

// getLockSeconds limits the wait. It is longer than anybody waits: for MariaDB, -1 means no wait at
// all, not no limit.
const getLockSeconds = 1_000_000

// Hold implements contest.Client.
func (c getLock) Hold(ctx context.Context, keys []string, work contest.Work) error {
	conn, err := c.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	return contest.HoldEach(ctx, keys, func(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
		if err := call(ctx, conn, "SELECT GET_LOCK(?, ?)", key, getLockSeconds); err != nil {
			return nil, nil, fmt.Errorf("GET_LOCK of %q: %w", key, err)
		}
		return ctx, func() error {
			ctx, cancel := contest.Unlocking(ctx)
			defer cancel()
			if err := call(ctx, conn, "SELECT RELEASE_LOCK(?)", key); err != nil {
				// The session may still be locked: its pool loses the connection.
				_ = conn.Raw(func(any) error { return driver.ErrBadConn })
				return fmt.Errorf("RELEASE_LOCK of %q: %w", key, err)
			}
			return nil
		}, nil
	}, work)
}

// call calls a function that returns 1 for success, 0 for none, and NULL for an error.
func call(ctx context.Context, conn *sql.Conn, query string, arguments ...any) error {
	var answer sql.NullInt64
	if err := conn.QueryRowContext(ctx, query, arguments...).Scan(&answer); err != nil {
		return err
	}
	if answer.Int64 != 1 {
		return fmt.Errorf("the answer is %d (NULL: %t), not 1", answer.Int64, !answer.Valid)
	}
	return nil
}
