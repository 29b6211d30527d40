// Package contestants has the locks that are compared, one in each file. Importing it registers
// them.
package contestants

import (
	"context"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/dialects"
)

// opening opens a client of a contestant.
type opening func(ctx context.Context, env contest.Environment) (contest.Client, error)

// floors are locks written by hand for the same client library as txlock's. They lock rows of a
// table like the library's, queue as it does, and check nothing: no missing slot, no lost
// connection, no wait to interrupt. For database/sql, and for mysql.New, the floor is BeginTx, the
// lock, and Rollback or Commit, because users write that.
//
// A bare one gives less than the library promises. On PostgreSQL it has no queue lock, so newcomers
// overtake. In a Do on MySQL and MariaDB it has no savepoint, so it commits although its lock is
// lost.
var floors = []struct {
	server contest.Server
	client string
	use    use
	bare   bool
	open   opening
}{
	{contest.PostgreSQL, "pgx", useLock, false, floorPgx(queueLockAndRow, "rollback")},
	{contest.PostgreSQL, "pgx", useLock, true, floorPgx(onlyRow, "rollback")},
	{contest.PostgreSQL, "pgx", useDo, false, floorPgx(queueLockAndRow, "commit")},
	{contest.PostgreSQL, "pgx", useDo, true, floorPgx(onlyRow, "commit")},
	{contest.PostgreSQL, "database/sql on PostgreSQL", useLock, false, floorPostgresSQL((*tx).Rollback)},
	{contest.PostgreSQL, "database/sql on PostgreSQL", useDo, false, floorPostgresSQL((*tx).Commit)},
	{contest.MySQL, "MySQL", useLock, false, floorMySQL("", "ROLLBACK")},
	{contest.MySQL, "MySQL", useDo, false, floorMySQL("; SAVEPOINT floor", "RELEASE SAVEPOINT floor; COMMIT")},
	{contest.MySQL, "MySQL", useDo, true, floorMySQL("", "COMMIT")},
	{contest.MySQL, "mysql.New", useLock, false, floorMySQLPool((*tx).Rollback)},
	{contest.MySQL, "mysql.New", useDo, false, floorMySQLPool((*tx).Commit)},
	{contest.MariaDB, "MariaDB", useLock, false, floorMySQL("", "ROLLBACK")},
	{contest.MariaDB, "MariaDB", useDo, false, floorMySQL("; SAVEPOINT floor", "RELEASE SAVEPOINT floor; COMMIT")},
	{contest.MariaDB, "MariaDB", useDo, true, floorMySQL("", "COMMIT")},
	{contest.MariaDB, "mysql.New on MariaDB", useLock, false, floorMySQLPool((*tx).Rollback)},
	{contest.MariaDB, "mysql.New on MariaDB", useDo, false, floorMySQLPool((*tx).Commit)},
}

func init() {
	for _, f := range floors {
		c := contest.Contestant{
			Name: floorName(f.use, f.client), Group: contest.Floor, Server: f.server, Waits: contest.Queued,
			Parts:  contest.Times,
			Remark: "the promise of txlock " + string(f.use) + ", without the library", Open: f.open,
			Prepare: func(ctx context.Context, env contest.Environment, _ []string) error {
				return seedFloor(ctx, f.server, env)
			},
		}
		if f.use == useLock {
			c.Parts |= contest.HandOff
			if !f.bare && slices.Contains([]string{"pgx", "MySQL", "MariaDB"}, f.client) {
				c.Parts |= contest.Crowd
			}
		}
		if f.bare {
			c.Name, c.Remark = bareName(f.use, f.client), "only the row: less than txlock "+string(f.use)+" promises"
		}
		contest.Register(c)
	}
}

// floorOf and bareOf are the names of the floors to compare a use of a client with, or empty. Where
// the promise needs nothing but the row, they are the same.
func floorOf(u use, client string) string { return namedFloor(floorName(u, client), u, client, false) }

func bareOf(u use, client string) string {
	if name := namedFloor(bareName(u, client), u, client, true); name != "" || client == "database/sql on PostgreSQL" {
		return name
	}
	return floorOf(u, client)
}

func namedFloor(name string, u use, client string, bare bool) string {
	for _, f := range floors {
		if f.use == u && f.client == client && f.bare == bare {
			return name
		}
	}
	return ""
}

func floorName(u use, client string) string { return fmt.Sprintf("by hand: %s, %s", u, client) }

func bareName(u use, client string) string { return fmt.Sprintf("bare row: %s, %s", u, client) }

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
