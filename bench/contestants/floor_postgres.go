package contestants

import (
	"context"
	"database/sql"
	"errors"
	"hash/fnv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txlock/txlock/bench/contest"
	pools "github.com/txlock/txlock/bench/database"
)

func queueLockOf(key string) int64 {
	h := fnv.New64a()
	h.Write([]byte(key))
	return int64(h.Sum64())
}

var floorRow = "select slot from " + floorTable + " where slot = $1 and " + floorSelect + " for update"

// onlyRow and queueLockAndRow queue the statements that lock a key.
func onlyRow(batch *pgx.Batch, key string) { batch.Queue(floorRow, slotOf(key)) }

func queueLockAndRow(batch *pgx.Batch, key string) {
	batch.Queue("select pg_advisory_xact_lock($1)", queueLockOf(key))
	onlyRow(batch, key)
}

// floorPgx begins and locks in one round trip, and ends in another.
func floorPgx(lock func(batch *pgx.Batch, key string), end string) opening {
	return func(ctx context.Context, env contest.Environment) (contest.Client, error) {
		pool, err := pools.Pool(ctx, env.Address(), env.Contenders)
		if err != nil {
			return nil, err
		}
		return holdFunc{func(ctx context.Context, key string, work contest.Work) error {
			return holdPgx(ctx, pool, func(batch *pgx.Batch) { lock(batch, key) }, end, work)
		}, pool.Close}, nil
	}
}

func holdPgx(ctx context.Context, pool *pgxpool.Pool, lock func(*pgx.Batch), end string, work contest.Work) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	var batch pgx.Batch
	batch.Queue("begin")
	lock(&batch)
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		return err
	}
	failed := work(ctx, nil)
	if failed != nil {
		end = "rollback"
	}
	_, err = conn.Exec(context.WithoutCancel(ctx), end)
	return errors.Join(failed, err)
}

// floorLock passes the queue lock and locks the slot in one statement: another would be another
// round trip for database/sql.
var floorLock = "with turn as materialized (select pg_advisory_xact_lock($1)) select slot from turn, " + floorTable +
	" as slots_of where slot = $2 and " + floorSelect + " for update of slots_of"

// tx is a transaction of database/sql. It ends with Rollback or Commit.
type tx = sql.Tx

func floorPostgresSQL(end func(*tx) error) opening {
	return func(ctx context.Context, env contest.Environment) (contest.Client, error) {
		db, err := pools.SQL(ctx, contest.PostgreSQL, env.Address(), env.Contenders)
		if err != nil {
			return nil, err
		}
		return holdFunc{func(ctx context.Context, key string, work contest.Work) error {
			tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
			if err != nil {
				return err
			}
			defer tx.Rollback()
			var slot int
			if err := tx.QueryRowContext(ctx, floorLock, queueLockOf(key), slotOf(key)).Scan(&slot); err != nil {
				return err
			}
			if err := work(ctx, nil); err != nil {
				return err
			}
			return end(tx)
		}, func() { _ = db.Close() }}, nil
	}
}
