package records

import (
	"context"
	"database/sql"
	"fmt"
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

// inWindow is whether the work was done in the window of a time. A clock that was set back does not
// make work run twice: what was done later than now was done.
func inWindow(marker dialects.Marker, at string) string {
	at = microseconds(at)
	return fmt.Sprintf("%s >= %s - MOD(%s, %d)", microseconds("done_at"), at, at, marker.Period.Microseconds())
}

// MarkSQL forgets a marker, or writes it, and fails with SeveralRows if it was there. It looks at
// the row itself, whatever snapshot the transaction has. A row that exists is found by its primary
// key, so no gap is locked at REPEATABLE READ. The count of rows would not tell: with
// clientFoundRows it is 1 in any case.
func MarkSQL(table string, marker dialects.Marker) (string, error) {
	markers, err := sqltext.Beside(table, locktable.Markers)
	if marker.Verb == dialects.ForgetMarker {
		return "DELETE FROM " + markers + " WHERE marker = " + bytesOf(marker.Hash), err
	}
	at, update := now, "(SELECT 1 UNION ALL SELECT 2)"
	if !marker.At.IsZero() {
		at = marker.At.UTC().Format("'2006-01-02 15:04:05.000000'")
	}
	if marker.Period > 0 {
		update = "IF(" + inWindow(marker, at) + ", " + update + ", " + at + ")"
	}
	return fmt.Sprintf("INSERT INTO %s (marker, done_at, run) VALUES (%s, %s, 0) ON DUPLICATE KEY UPDATE done_at = %s",
		markers, bytesOf(marker.Hash), at, update), err
}

// LookSQL asks what Marker.Read reads, behind front. It is to be read where no snapshot is older
// than the lock.
func LookSQL(table string, marker dialects.Marker, front string) (string, error) {
	markers, err := sqltext.Beside(table, locktable.Markers)
	found := "SELECT " + microseconds("done_at") + " FROM " + markers + " WHERE marker = " + bytesOf(marker.Hash)
	if marker.Period > 0 {
		found += " AND " + inWindow(marker, now)
	}
	return "SELECT CONCAT_WS(' ', " + front + microseconds(now) + ", (" + found + "))", err
}

// Done does what dialects.Keeper promises.
func (k Keeper) Done(ctx context.Context, table string, marker dialects.Marker) (at time.Time, err error) {
	look, err := LookSQL(table, marker, client.ReadsNow+", ")
	if err != nil {
		return at, err
	}
	answer, err := k.readNow(ctx, table, look)
	if err != nil {
		return at, err
	}
	_, text, _ := strings.Cut(strings.Join(answer, ""), " ")
	return marker.Read(text)
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

// now is the same in all of a statement: the time at which it began.
const now = "UTC_TIMESTAMP(6)"

func bytesOf(hash [32]byte) string { return fmt.Sprintf("x'%x'", hash) }
