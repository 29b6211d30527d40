// Package records keeps the rows beside the lock table: who leads, what was done, and which permits
// there are. It locks none of them for longer than a statement or a batch takes.
package records

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// literalsOf are the hash and, between commas, the name.
func literalsOf(named dialects.Named) (hash, name string, err error) {
	hash, err = sqltext.Literal(dialects.Value{Text: named.Hash})
	if err != nil || named.Name == "" {
		return hash, ", NULL, ", err
	}
	name, err = sqltext.Literal(dialects.Value{Text: named.Name})
	return hash, ", " + name + ", ", err
}

// complete has the rows of one election or semaphore inserted, as long as look finds that some are
// missing. What names them.
func complete(ctx context.Context, pool *client.Pool, table, what string,
	look func(*sql.Conn) (insert string, err error),
) error {
	return pool.With(ctx, func(conn *sql.Conn) error {
		for range 5 {
			insert, err := look(conn)
			if insert == "" {
				return server.Ours(err, table)
			}
			// Two clients that add the rows at once may meet in a deadlock: one has to look again.
			_, err = alone(ctx, conn, "INSERT IGNORE INTO "+table+" "+insert)
			if err != nil && server.Number(err) != server.LockDeadlock {
				return server.Ours(err, table)
			}
		}
		return fmt.Errorf("%w: %s cannot be made", dialects.ErrNoRow, what)
	})
}

// alone runs a statement that commits by itself. No lock outlives it: this process may be stopped
// right behind it, and the connection has no lease. At REPEATABLE READ, servers take it whatever
// their binlog_format is.
func alone(ctx context.Context, conn *sql.Conn, query string) (changed int64, err error) {
	if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		return 0, err
	}
	err = client.Setting(ctx, conn, func() error {
		if _, err := conn.ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"); err != nil {
			return err
		}
		result, err := conn.ExecContext(ctx, query)
		if err == nil {
			changed, err = result.RowsAffected()
		}
		return err
	}, "autocommit", "1", "innodb_lock_wait_timeout", sqltext.Seconds(recordWait))
	return changed, err
}

// recordWait bounds the wait for a row that somebody else writes, which takes one statement.
const recordWait = 3 * time.Second
