package contestants

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3/lock"

	"github.com/txlock/txlock/bench/contest"
	pools "github.com/txlock/txlock/bench/database"
)

const (
	goosePoll  = 5 * time.Second // the default; it must be given to lift the limit on tries
	gooseTries = math.MaxInt64
	gooseTable = "bench_goose"
)

func init() {
	contest.Register(contest.Contestant{
		Name: "goose session locker", Group: contest.Libraries, Server: contest.PostgreSQL, Waits: contest.Polling,
		Remark:  "pg_try_advisory_lock every 5 s as shipped; does not tell the work of a lost session",
		Prepare: nothing,
		Open: func(ctx context.Context, env contest.Environment) (contest.Client, error) {
			db, err := openStandard(ctx, env)
			return gooseSession{db}, err
		},
	})
	registerGooseTable(contest.PostgreSQL, lock.NewPostgresTableLocker, openStandard)
	registerGooseTable(contest.MySQL, lock.NewMySQLTableLocker, openMySQLTimes)
}

// openStandard connects to PostgreSQL through database/sql, the only interface that goose accepts.
func openStandard(ctx context.Context, env contest.Environment) (*sql.DB, error) {
	return pools.SQL(ctx, contest.PostgreSQL, env.Address(), env.Contenders)
}

// openMySQLTimes connects to MySQL so that times can be scanned, as goose does.
func openMySQLTimes(ctx context.Context, env contest.Environment) (*sql.DB, error) {
	return openMySQL(ctx, env, func(config *mysql.Config) { config.ParseTime = true })
}

func registerGooseTable(
	server contest.Server,
	locker func(...lock.TableLockerOption) (lock.Locker, error),
	open func(context.Context, contest.Environment) (*sql.DB, error),
) {
	contest.Register(contest.Contestant{
		Name:  fmt.Sprintf("goose table locker, %s", server),
		Group: contest.Libraries, Server: server, Waits: contest.Polling, Leased: true,
		Remark: "polls every 5 s, heartbeat every sixth of the lease, in whole seconds, as shipped; does not tell " +
			"the work " +
			"of a lost lease, and tries to unlock for a minute then",
		Prepare: func(ctx context.Context, env contest.Environment, _ []string) error {
			env.Contenders = 1
			db, err := open(ctx, env)
			if err != nil {
				return err
			}
			client := gooseTableClient{DB: db, lease: env.Lease, locker: locker}
			defer client.Close()
			if _, err := db.ExecContext(ctx, "DROP TABLE IF EXISTS "+gooseTable); err != nil {
				return err
			}
			// The first lock creates the table.
			return client.Hold(ctx, []string{"first"}, func(context.Context, contest.Tx) error { return nil })
		},
		Open: func(ctx context.Context, env contest.Environment) (contest.Client, error) {
			if env.Lease < time.Second {
				return nil, fmt.Errorf("goose counts a lease in whole seconds: %v is none", env.Lease)
			}
			db, err := open(ctx, env)
			return gooseTableClient{DB: db, lease: env.Lease, locker: locker}, err
		},
	})
}

// gooseSession makes a locker for each key and call. A locker has one key, and its limit on tries
// counts over all its calls.
type gooseSession struct{ *sql.DB }

// Hold implements contest.Client.
func (c gooseSession) Hold(ctx context.Context, keys []string, work contest.Work) error {
	conn, err := c.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	return contest.HoldEach(ctx, keys, func(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
		locker, err := lock.NewPostgresSessionLocker(
			lock.WithLockID(hashed(key)), lock.WithLockTimeout(uint64(goosePoll.Seconds()), gooseTries))
		if err == nil {
			err = locker.SessionLock(ctx, conn)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("goose: lock %q: %w", key, err)
		}
		return ctx, func() error {
			ctx, cancel := unlocking(ctx)
			defer cancel()
			if err := locker.SessionUnlock(ctx, conn); err != nil {
				drop(conn)
				return fmt.Errorf("goose: unlock %q: %w", key, err)
			}
			return nil
		}, nil
	}, work)
}

// gooseTableClient makes a locker for each key and call, like [gooseSession]. Callers that wait for
// each other within one locker ignore their contexts.
type gooseTableClient struct {
	*sql.DB
	lease  time.Duration
	locker func(...lock.TableLockerOption) (lock.Locker, error)
}

// Hold implements contest.Client.
func (c gooseTableClient) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return contest.HoldEach(ctx, keys, c.lock, work)
}

func (c gooseTableClient) lock(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
	locker, err := c.locker(
		lock.WithTableName(gooseTable), lock.WithTableLockID(hashed(key)),
		// The defaults have the same ratio: 5 of 30 seconds.
		lock.WithTableLeaseDuration(c.lease), lock.WithTableHeartbeatInterval(c.lease/6),
		lock.WithTableLockTimeout(goosePoll, gooseTries))
	if err == nil {
		err = locker.Lock(ctx, c.DB)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("goose: lock %q: %w", key, err)
	}
	return ctx, func() error {
		if err := locker.Unlock(ctx, c.DB); err != nil {
			return fmt.Errorf("goose: unlock %q: %w", key, err)
		}
		return nil
	}, nil
}
