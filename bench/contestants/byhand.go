// Package contestants has the locks that are compared. Importing it registers them.
package contestants

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txlock/txlock/bench/contest"
	pools "github.com/txlock/txlock/bench/database"
	"github.com/txlock/txlock/dialects"
)

// hand is what a user of a client library writes instead of txlock: the same statements, in as few
// round trips as that library allows. It locks rows of a table like txlock's, queues as txlock
// does, and checks nothing: no missing slot, no lost connection, no wait to interrupt.
type hand struct {
	server contest.Server
	name   string
	beside []string // the clients of txlock that it is compared with
	uses   []use
	open   func(server contest.Server, u use) opening
}

// opening opens a client of a contestant.
type opening = func(ctx context.Context, env contest.Environment) (contest.Client, error)

var hands = []hand{
	{contest.PostgreSQL, "pgx.Batch", []string{"postgres.Open", "postgres.New"}, append(ofPools, useExec), openBatch},
	{contest.PostgreSQL, "database/sql on PostgreSQL", []string{"postgres.NewSQL"}, ofPools, openByOne},
	{contest.MySQL, "one query on MySQL", []string{"mysql.Open"}, ofOpen, openOneQuery},
	{contest.MySQL, "database/sql on MySQL", []string{"mysql.New"}, ofPools, openByOne},
	{contest.MariaDB, "one query on MariaDB", []string{"mysql.Open on MariaDB"}, ofOpen, openOneQuery},
	{contest.MariaDB, "database/sql on MariaDB", []string{"mysql.New on MariaDB"}, ofPools, openByOne},
}

func init() {
	for _, h := range hands {
		for _, u := range h.uses {
			c := contest.Contestant{
				Name: h.of(u), Group: contest.ByHand, Server: h.server, Waits: contest.Queued,
				Remark: "the promise of txlock " + string(u) + ", without the library",
				Parts:  contest.Turns, Open: h.open(h.server, u),
				Prepare: func(ctx context.Context, env contest.Environment) error {
					if u == useExec {
						if err := createCounter(ctx, h.server, env); err != nil {
							return err
						}
					}
					return seedSlots(ctx, h.server, env)
				},
			}
			if u != useExec {
				c.Parts |= contest.Times
			}
			if u == useLock && !strings.HasPrefix(h.name, "database/sql") {
				c.Parts |= contest.Growth | contest.Contention | contest.Crowd
			}
			contest.Register(c)
		}
	}
}

func (h hand) of(u use) string { return fmt.Sprintf("by hand: %s, %s", u, h.name) }

// byHandName is the name of the contestant to compare a use of a client of txlock with.
func byHandName(u use, client string) string {
	for _, h := range hands {
		if slices.Contains(h.beside, client) {
			return h.of(u)
		}
	}
	panic("bug: nothing by hand beside " + client)
}

const slotTable = "bench_by_hand"

// seedSlots creates as many slots as txlock has by default, unless an earlier contestant has.
func seedSlots(ctx context.Context, server contest.Server, env contest.Environment) error {
	db, err := pools.Open(ctx, server, env.Address, 1)
	if err != nil {
		return err
	}
	defer db.Close()
	there, err := db.Number(ctx, nil, "SELECT count(*) FROM "+slotTable)
	if err == nil && there == dialects.DefaultSlots {
		return nil
	}
	statements := []string{
		"DROP TABLE IF EXISTS " + slotTable,
		"CREATE TABLE " + slotTable + " (slot INT PRIMARY KEY, slots INT NOT NULL)",
	}
	rows := make([]string, dialects.DefaultSlots)
	for i := range rows {
		rows[i] = fmt.Sprintf("(%d, %d)", i, len(rows))
	}
	for some := range slices.Chunk(rows, 10_000) {
		statements = append(statements, "INSERT INTO "+slotTable+" VALUES "+strings.Join(some, ", "))
	}
	return pools.Run(ctx, server, env.Address, statements...)
}

// The counter is what an Exec changes.
const (
	counterTable = "bench_counter"
	count        = "UPDATE " + counterTable + " SET n = n + 1 WHERE id = 1"
)

func createCounter(ctx context.Context, server contest.Server, env contest.Environment) error {
	return pools.Run(ctx, server, env.Address, "DROP TABLE IF EXISTS "+counterTable,
		"CREATE TABLE "+counterTable+" (id INT PRIMARY KEY, n BIGINT NOT NULL)",
		"INSERT INTO "+counterTable+" VALUES (1, 0)")
}

// slotOf is the slot of a key, and whereSlot finds its row as txlock does: only in a table with as
// many slots as the client expects.
func slotOf(key string) int64 { return int64(crc32.ChecksumIEEE([]byte(key)) % dialects.DefaultSlots) }

var whereSlot = fmt.Sprintf(" AND slots = %d", dialects.DefaultSlots)

// lockPostgres passes the queue lock, and then locks the row of the slot.
var lockPostgres = "SELECT slot FROM " + slotTable + " WHERE slot = $1" + whereSlot +
	" AND (SELECT pg_advisory_xact_lock($2) IS NOT NULL) FOR UPDATE"

// holding is a client that has nothing of its own to close but its pool.
type holding struct {
	hold  func(ctx context.Context, keys []string, work contest.Work) error
	close func()
}

// Hold implements contest.Client.
func (h holding) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return h.hold(ctx, keys, work)
}

// Close implements contest.Client.
func (h holding) Close() error {
	h.close()
	return nil
}

// openBatch begins and locks in one round trip, and ends in another. An Exec does all in one.
func openBatch(_ contest.Server, u use) opening {
	return func(ctx context.Context, env contest.Environment) (contest.Client, error) {
		pool, err := pools.Pool(ctx, env.Address, env.Contenders)
		if err != nil {
			return nil, err
		}
		return holding{func(ctx context.Context, keys []string, work contest.Work) error {
			if u == useLockTx {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					var batch pgx.Batch
					queueLocks(&batch, keys)
					if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
						return err
					}
					return work(ctx, nil)
				})
			}
			return holdInBatch(ctx, pool, u, keys, work)
		}, pool.Close}, nil
	}
}

func queueLocks(batch *pgx.Batch, keys []string) {
	for _, key := range keys {
		batch.Queue(lockPostgres, slotOf(key), hashed(key))
	}
}

func holdInBatch(ctx context.Context, pool *pgxpool.Pool, u use, keys []string, work contest.Work) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	var batch pgx.Batch
	batch.Queue("begin")
	queueLocks(&batch, keys)
	if u == useExec {
		batch.Queue(count)
		batch.Queue("commit")
	}
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil || u == useExec {
		return err
	}
	end := map[use]string{useLock: "rollback", useDo: "commit"}[u]
	failed := work(ctx, nil)
	if failed != nil {
		end = "rollback"
	}
	_, err = conn.Exec(context.WithoutCancel(ctx), end)
	return errors.Join(failed, err)
}

// openByOne sends statement by statement, on any connection of a pool.
func openByOne(server contest.Server, u use) opening {
	return func(ctx context.Context, env contest.Environment) (contest.Client, error) {
		db, err := pools.SQL(ctx, server, env.Address, env.Contenders)
		if err != nil {
			return nil, err
		}
		return holding{func(ctx context.Context, keys []string, work contest.Work) error {
			return holdByOne(ctx, server, db, u, keys, work)
		}, func() { _ = db.Close() }}, nil
	}
}

func holdByOne(ctx context.Context, server contest.Server, db *sql.DB, u use, keys []string, work contest.Work) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // is what ends a Lock
	for _, key := range keys {
		if server == contest.PostgreSQL {
			err = tx.QueryRowContext(ctx, lockPostgres, slotOf(key), hashed(key)).Scan(new(int))
		} else {
			err = tx.QueryRowContext(ctx, lockMySQL([]string{key})).Scan(new(int))
		}
		if err != nil {
			return err
		}
	}
	if err := work(ctx, nil); err != nil || u == useLock {
		return err
	}
	return tx.Commit()
}

// lockMySQL locks the rows of keys in one statement, in the order of the slots.
func lockMySQL(keys []string) string {
	slots := make([]string, len(keys))
	for i, key := range keys {
		slots[i] = fmt.Sprint(slotOf(key))
	}
	return "SELECT slot FROM " + slotTable + " WHERE slot IN (" + strings.Join(slots, ", ") + ")" + whereSlot +
		" ORDER BY slot FOR UPDATE"
}

// openOneQuery sends all that goes together in one query, on connections on which transactions
// begin by themselves, like mysql.Open. A Do has a savepoint, so that it does not commit when its
// lock is lost.
func openOneQuery(server contest.Server, u use) opening {
	behind := map[use]string{useDo: "; SAVEPOINT work", useExec: "; " + count + "; COMMIT"}[u]
	end := map[use]string{useLock: "ROLLBACK", useDo: "RELEASE SAVEPOINT work; COMMIT"}[u]
	return func(ctx context.Context, env contest.Environment) (contest.Client, error) {
		config, err := mysql.ParseDSN(env.Address)
		if err != nil {
			return nil, err
		}
		config.MultiStatements = true
		config.Params = map[string]string{"autocommit": "0"}
		db, err := pools.SQL(ctx, server, config.FormatDSN(), env.Contenders)
		if err != nil {
			return nil, err
		}
		return holding{func(ctx context.Context, keys []string, work contest.Work) error {
			conn, err := db.Conn(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
			if err := query(ctx, conn, lockMySQL(keys)+behind); err != nil || end == "" {
				return err
			}
			ending := end
			failed := work(ctx, nil)
			if failed != nil {
				ending = "ROLLBACK"
			}
			_, err = conn.ExecContext(context.WithoutCancel(ctx), ending)
			return errors.Join(failed, err)
		}, func() { _ = db.Close() }}, nil
	}
}

// query reads all results of a query of several statements.
func query(ctx context.Context, conn *sql.Conn, text string) error {
	rows, err := conn.QueryContext(ctx, text)
	if err != nil {
		return err
	}
	defer rows.Close()
	for {
		for rows.Next() {
		}
		if !rows.NextResultSet() {
			return rows.Err()
		}
	}
}
