// Package contestants has the locks that are compared, one in each file. Importing it registers
// them.
package contestants

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txlock/txlock/bench/contest"
	pools "github.com/txlock/txlock/bench/database"
	"github.com/txlock/txlock/dialects"
)

// floors are the statements that the library sends, in as many round trips, written by hand for the
// same client library. They exclude and queue as the library does, but check nothing: no missing
// slot, no lost connection, no wait to interrupt. For database/sql, and for mysql.New, the floor is
// BeginTx, the lock and Rollback, because users write that. The library itself bypasses
// database/sql and uses the driver's connection.
var floors = []struct {
	server contest.Server
	client string
	use    use
	open   func(ctx context.Context, env contest.Environment) (contest.Client, error)
}{
	{contest.PostgreSQL, "pgx", useLock, floorPgx(pgxLock)},
	{contest.PostgreSQL, "pgx", useDo, floorPgx(pgxDo)},
	{contest.PostgreSQL, "database/sql on PostgreSQL", useLock, floorPostgresSQL},
	{contest.MySQL, "MySQL", useLock, floorMySQL("", "ROLLBACK")},
	{contest.MySQL, "MySQL", useDo, floorMySQL("; SAVEPOINT floor", "RELEASE SAVEPOINT floor; COMMIT")},
	{contest.MySQL, "mysql.New", useLock, floorMySQLPool},
	{contest.MariaDB, "MariaDB", useLock, floorMySQL("", "ROLLBACK")},
	{contest.MariaDB, "MariaDB", useDo, floorMySQL("; SAVEPOINT floor", "RELEASE SAVEPOINT floor; COMMIT")},
}

func init() {
	for _, f := range floors {
		contest.Register(contest.Contestant{
			Name: floorName(f.use, f.client), Group: contest.Floor, Server: f.server, Waits: contest.Queued,
			Remark: "what txlock " + string(f.use) + " sends, without the library", Open: f.open,
			Prepare: func(ctx context.Context, env contest.Environment, _ []string) error {
				return seedFloor(ctx, f.server, env)
			},
		})
	}
}

func hasFloor(name string) bool {
	for _, f := range floors {
		if floorName(f.use, f.client) == name {
			return true
		}
	}
	return false
}

func floorName(u use, client string) string { return fmt.Sprintf("by hand: %s, %s", u, client) }

const floorTable = "bench_floor"

func seedFloor(ctx context.Context, server contest.Server, env contest.Environment) error {
	slots := make([]string, dialects.DefaultSlots)
	for i := range slots {
		slots[i] = fmt.Sprint(i)
	}
	return seed(ctx, server, env, floorTable, "slot INT PRIMARY KEY, slots INT NOT NULL", slots,
		fmt.Sprintf("(%%s, %d)", len(slots)))
}

func slotOf(key string) uint32 { return crc32.ChecksumIEEE([]byte(key)) % dialects.DefaultSlots }

// floorSelect finds a slot's row as the library does: only in a table with as many slots as the
// client expects.
var floorSelect = fmt.Sprintf("slots = %d", dialects.DefaultSlots)

// holdFunc is a client that has nothing of its own to close.
type holdFunc struct {
	hold  func(ctx context.Context, key string, work contest.Work) error
	close func()
}

// Hold implements contest.Client. The floor locks one key.
func (f holdFunc) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return f.hold(ctx, keys[0], work)
}

// Close implements contest.Client.
func (f holdFunc) Close() error {
	f.close()
	return nil
}

func turnstileOf(key string) int64 {
	h := fnv.New64a()
	h.Write([]byte(key))
	return int64(h.Sum64())
}

// pgxStatements are the statements of one cycle on PostgreSQL.
type pgxStatements struct {
	begin, settings string
	values          []any // of settings
	end             string
}

const floorSettings = "select set_config('idle_in_transaction_session_timeout', $1, true), " +
	"set_config('client_connection_check_interval', $2, true)"

var (
	pgxLock = pgxStatements{
		begin: "begin isolation level read committed read write", settings: floorSettings,
		values: []any{"30000ms", "500ms"}, end: "rollback",
	}
	// These statements also keep work that sends COMMIT itself from continuing without the lock.
	pgxDo = pgxStatements{
		begin: pgxLock.begin + "; select set_config('floor.read_only', " +
			"current_setting('default_transaction_read_only'), false), " +
			"set_config('default_transaction_read_only', 'on', false); commit and chain",
		settings: floorSettings + ", set_config('floor.held', $3, true)", values: []any{"30000ms", "500ms", "this one"},
		end: "select 1 / (current_setting('floor.held', true) is not distinct from 'this one')::int, " +
			"set_config('default_transaction_read_only', coalesce(nullif(current_setting('floor.read_only', true), " +
			"''), " +
			"current_setting('default_transaction_read_only')), false), set_config('floor.read_only', '', false); " +
			"commit",
	}
)

func floorPgx(with pgxStatements) func(ctx context.Context, env contest.Environment) (contest.Client, error) {
	return func(ctx context.Context, env contest.Environment) (contest.Client, error) {
		pool, err := pools.Pool(ctx, env.Address(), env.Contenders)
		if err != nil {
			return nil, err
		}
		hold := func(ctx context.Context, key string, work contest.Work) error {
			return with.hold(
				ctx, pool, key, work)
		}
		return holdFunc{hold, pool.Close}, nil
	}
}

func (s pgxStatements) hold(ctx context.Context, pool *pgxpool.Pool, key string, work contest.Work) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	var batch pgx.Batch
	for _, statement := range strings.Split(s.begin, "; ") {
		batch.Queue(statement)
	}
	batch.Queue(s.settings, s.values...)
	batch.Queue(floorLock, turnstileOf(key), slotOf(key))
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		return err
	}
	end, failed := s.end, work(ctx, nil)
	if failed != nil {
		end = "rollback"
	}
	_, err = conn.Exec(context.WithoutCancel(ctx), end)
	return errors.Join(failed, err)
}

// floorLock passes the turnstile and locks the slot, on PostgreSQL.
var floorLock = "with turn as materialized (select pg_advisory_xact_lock($1)) select slot from turn, " + floorTable +
	" as slots_of where slot = $2 and " + floorSelect + " for update of slots_of"

func floorPostgresSQL(ctx context.Context, env contest.Environment) (contest.Client, error) {
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
		if err := tx.QueryRowContext(ctx, floorLock, turnstileOf(key), slotOf(key)).Scan(&slot); err != nil {
			return err
		}
		if err := work(ctx, nil); err != nil {
			return err
		}
		return tx.Rollback()
	}, func() { _ = db.Close() }}, nil
}

// floorMySQL uses connections on which transactions begin by themselves, like mysql.Open.
func floorMySQL(behind, end string) func(ctx context.Context, env contest.Environment) (contest.Client, error) {
	return func(ctx context.Context, env contest.Environment) (contest.Client, error) {
		config, err := mysql.ParseDSN(env.Address())
		if err != nil {
			return nil, err
		}
		config.MultiStatements = true
		config.Params = map[string]string{"autocommit": "0"}
		db, err := pools.SQL(ctx, contest.MySQL, config.FormatDSN(), env.Contenders)
		if err != nil {
			return nil, err
		}
		return holdFunc{func(ctx context.Context, key string, work contest.Work) error {
			conn, err := db.Conn(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
			if err := selectSlot(ctx, conn, key, behind); err != nil {
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

// floorMySQLPool uses any connection of a pool, like mysql.New.
func floorMySQLPool(ctx context.Context, env contest.Environment) (contest.Client, error) {
	db, err := pools.SQL(ctx, contest.MySQL, env.Address(), env.Contenders)
	if err != nil {
		return nil, err
	}
	return holdFunc{func(ctx context.Context, key string, work contest.Work) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := selectSlot(ctx, tx, key, ""); err != nil {
			return err
		}
		if err := work(ctx, nil); err != nil {
			return err
		}
		return tx.Rollback()
	}, func() { _ = db.Close() }}, nil
}

func selectSlot(ctx context.Context, on interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}, key, behind string,
) error {
	query := fmt.Sprintf("SELECT slot FROM %s WHERE slot = %d AND %s FOR UPDATE%s", floorTable, slotOf(key),
		floorSelect, behind)
	rows, err := on.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
	}
	for rows.NextResultSet() {
	}
	return rows.Err()
}
