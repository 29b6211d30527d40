package records

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/batch"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// microseconds counts those of a time since the Unix epoch.
func microseconds(time string) string {
	return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', " + time + ")"
}

// inWindow is whether the work was done in the present window. UTC_TIMESTAMP is the time at which
// its statement began, also among several in one query; the session's time zone does not matter. A
// clock that was set back does not make work run twice: what was done later than now was done.
func inWindow(marker dialects.Marker) string {
	now := microseconds("UTC_TIMESTAMP(6)")
	return fmt.Sprintf("%s >= %s - MOD(%s, %d)", microseconds("done_at"), now, now, marker.Period.Microseconds())
}

// MarkSQL forgets a marker, or writes it, and reads in a second statement whether it was written.
// Both do so where condition holds. Both look at the row itself, whatever snapshot the transaction
// has. A row that exists is found by its primary key, so no gap is locked at REPEATABLE READ; a
// locking read of a missing row would lock one. The count of rows would not tell: with
// clientFoundRows it is 1 in both cases.
//
// With a condition, the values come from a SELECT of one row, for VALUES takes none. Where the
// binary log takes statements only, both servers would call that unsafe, in their logs, each time.
// So no marker travels with its lock there.
func MarkSQL(table string, marker dialects.Marker, condition string) (write, read string, err error) {
	markers, err := sqltext.Beside(table, locktable.Markers)
	if marker.Forget {
		return "DELETE FROM " + markers + " WHERE marker = " + bytesOf(marker.Hash), "", err
	}
	run := rand.Int64()
	update := "run = run"
	if marker.Period > 0 { // from left to right
		window := inWindow(marker)
		update = fmt.Sprintf("run = IF(%s, run, %d), done_at = IF(%[1]s, done_at, UTC_TIMESTAMP(6))", window, run)
	}
	values := fmt.Sprintf("%s, UTC_TIMESTAMP(6), %d", bytesOf(marker.Hash), run)
	read = fmt.Sprintf("SELECT run = %d FROM %s WHERE marker = %s", run, markers, bytesOf(marker.Hash))
	if condition == "" {
		values = "VALUES (" + values + ")"
	} else {
		values = "SELECT " + values + " FROM DUAL WHERE " + condition
		read += " AND " + condition
	}
	write = fmt.Sprintf("INSERT INTO %s (marker, done_at, run) %s ON DUPLICATE KEY UPDATE %s", markers, values, update)
	return write, read + " FOR UPDATE", err
}

// Marked judges the answer of MarkSQL.
func Marked(answer []string) error {
	if len(answer) != 1 || answer[0] != "1" {
		return dialects.ErrDone
	}
	return nil
}

// DoneSQL reads when the work was done.
func DoneSQL(table string, marker dialects.Marker) (string, error) {
	markers, err := sqltext.Beside(table, locktable.Markers)
	condition := ""
	if marker.Period > 0 {
		condition = " AND " + inWindow(marker)
	}
	where := " WHERE marker = " + bytesOf(marker.Hash) + condition
	return "SELECT " + microseconds("done_at") + " FROM " + markers + where, err
}

// Done does what dialects.Keeper promises.
func (k Keeper) Done(ctx context.Context, table string, marker dialects.Marker) (at time.Time, err error) {
	conn, err := k.pool.Acquire(ctx)
	if err != nil {
		return at, err
	}
	defer conn.Close()
	return DoneOn(ctx, conn, table, marker)
}

// DoneOn is Done on a connection without a transaction.
func DoneOn(ctx context.Context, conn client.Conn, table string, marker dialects.Marker) (at time.Time, err error) {
	done, err := DoneSQL(table, marker)
	if err != nil {
		return at, err
	}
	answer, err := readOn(ctx, conn, table, "SELECT CONCAT_WS(' ', "+client.ReadsNow+", ("+done+"))")
	if err != nil {
		return at, err
	}
	_, text, found := strings.Cut(strings.Join(answer, ""), " ")
	if !found {
		return at, nil
	}
	micros, err := strconv.ParseInt(text, 10, 64)
	return time.UnixMicro(micros), err
}

// Sweep does what dialects.Keeper promises, by age. What was deleted before is not purged yet.
func (k Keeper) Sweep(ctx context.Context, table string, age time.Duration) (deleted int64, err error) {
	markers, err := sqltext.Beside(table, locktable.Markers)
	if err != nil {
		return 0, err
	}
	claims, _ := sqltext.Beside(table, locktable.Claims)
	err = k.pool.With(ctx, func(conn *sql.Conn) error {
		limits, err := server.Column(ctx, conn, fmt.Sprintf("SELECT CONCAT(%s, ' ', UTC_TIMESTAMP(6) - INTERVAL %d "+
			"MICROSECOND)", sqltext.Level, age.Microseconds()))
		if err != nil {
			return err
		}
		level, until, _ := strings.Cut(limits[0], " ")
		options := sql.TxOptions{Isolation: sql.LevelReadCommitted}
		if level == "REPEATABLE-READ" {
			options.Isolation = sql.LevelRepeatableRead
		}
		if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil { // what the reading may have begun
			return err
		}
		for _, of := range []timed{{markers, "marker", "done_at"}, {claims, "claim", "until"}} {
			gone, err := batch.Run("0001-01-01", func(from string, size int) (last string, n int, err error) {
				return of.sweep(ctx, conn, options, from, until, size)
			})
			deleted += gone
			if err != nil && (of.table == markers || server.Number(err) != server.NoSuchTable) {
				return server.Ours(err, of.table)
			}
		}
		return nil
	})
	return deleted, err
}

// timed is a table of rows whose time is over one day.
type timed struct{ table, key, time string }

// sweep deletes one batch, and returns the age where it ended. It waits for nobody, so it meets
// nobody in a deadlock. Each statement names its index. The server would read all of a small table
// otherwise, for a list of primary keys too, and would lock what it reads: hence the join, which
// looks each of them up.
func (t timed) sweep(ctx context.Context, conn *sql.Conn, options sql.TxOptions, from, until string, most int) (
	last string, deleted int, err error,
) {
	tx, err := conn.BeginTx(ctx, &options)
	if err != nil {
		return from, 0, err
	}
	defer func() { _ = tx.Rollback() }()
	old, err := server.Column(ctx, tx, fmt.Sprintf("%[1]sSELECT CONCAT(HEX(%[2]s), ' ', %[3]s) FROM %[4]s "+
		"FORCE INDEX (%[3]s) WHERE %[3]s >= '%[5]s' AND %[3]s < '%[6]s' ORDER BY %[3]s LIMIT %[7]d FOR UPDATE%[8]s",
		sqltext.OnMariaDB(sqltext.SomeWait), t.key, t.time, t.table, from, until, most, sqltext.SkipLocked))
	if err != nil || len(old) == 0 {
		return from, 0, err
	}
	hashes := make([]string, len(old))
	for i, row := range old {
		hashes[i], last, _ = strings.Cut(row, " ")
	}
	_, err = tx.ExecContext(ctx, "DELETE o FROM (SELECT x'"+strings.Join(hashes, "' AS hash UNION ALL SELECT x'")+
		"' AS hash) AS old STRAIGHT_JOIN "+t.table+" AS o FORCE INDEX (PRIMARY) ON o."+t.key+" = old.hash")
	if err == nil { // not tx.Commit, which on a pool of Open releases the savepoint of a lock first
		_, err = tx.ExecContext(ctx, "COMMIT")
	}
	if err != nil {
		return from, 0, err
	}
	return last, len(old), nil
}
