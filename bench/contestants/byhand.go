// Package contestants has the locks that are compared. Importing it registers them.
package contestants

import (
	"context"
	"database/sql"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/txlock/txlock/bench/contest"
	pools "github.com/txlock/txlock/bench/database"
	"github.com/txlock/txlock/dialects"
)

// hand is what a user of a client library writes instead of a Lock: the same promise, in as few
// round trips as that library allows. It locks rows of a table like txlock's, queues as txlock
// does, and checks nothing: no missing slot, no lost connection, no wait to interrupt.
type hand struct {
	server contest.Server
	way    string
	open   func(ctx context.Context, server contest.Server, env contest.Environment) (contest.Client, error)
}

var hands = []hand{
	{contest.PostgreSQL, "pgx.Batch", openBatch},
	{contest.MySQL, "one query on MySQL", openOneQuery},
	{contest.MariaDB, "one query on MariaDB", openOneQuery},
}

func init() {
	for _, h := range hands {
		contest.Register(contest.Contestant{
			Name: "by hand: Lock, " + h.way, Group: contest.ByHand, Server: h.server, Waits: contest.Queued,
			Remark: "the promise of a Lock, without the library",
			Parts:  contest.Times | contest.Growth | contest.Contention | contest.Crowd,
			Open: func(ctx context.Context, env contest.Environment) (contest.Client, error) {
				return h.open(ctx, h.server, env)
			},
			Prepare: func(ctx context.Context, env contest.Environment) error { return seedSlots(ctx, h.server, env) },
		})
	}
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

// openBatch begins and locks in one round trip, and ends in another.
func openBatch(ctx context.Context, server contest.Server, env contest.Environment) (contest.Client, error) {
	lock := statement{lockPostgres, []any{"SLOT", "HASH"}}
	return openPGX(ctx, server, env, exchange{[]flight{{{sql: "begin"}, lock}}, texts("rollback")})
}

// openOneQuery locks the rows of all keys in one query, in the order of the slots.
func openOneQuery(ctx context.Context, server contest.Server, env contest.Environment) (contest.Client, error) {
	return openQueries(ctx, server, env, exchange{texts("SELECT slot FROM " + slotTable + " WHERE slot IN (SLOT)" +
		whereSlot + " ORDER BY slot FOR UPDATE"), texts("ROLLBACK")})
}

// query reads all results of a query of several statements.
func query(ctx context.Context, conn *sql.Conn, text string, options ...any) error {
	rows, err := conn.QueryContext(ctx, text, options...)
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
