// Package records keeps the rows beside the lock table: who leads, and which permits there
// are. It locks none of them for longer than a statement or a batch takes.
package records

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// Keeper keeps them. Its methods do what dialects.Keeper promises.
type Keeper struct{ pool *client.Pool }

// New returns a Keeper, and sends nothing.
func New(pool *client.Pool) Keeper { return Keeper{pool} }

// Rows does what dialects.Keeper promises.
func (k Keeper) Rows(ctx context.Context, table string, of dialects.Named, n int, create bool) (
	found dialects.Rows, err error,
) {
	parts := []string{"seat", "record", "office"} // in the order of the column's type
	table, err = sqltext.Beside(table, locktable.Leaders)
	if err != nil {
		return found, err
	}
	hash, name, err := literalsOf(of)
	if err != nil {
		return found, err
	}
	find := "SELECT id, part FROM " + table + " WHERE hash = " + hash + " ORDER BY part"
	err = k.pool.With(ctx, func(conn *sql.Conn) error {
		for range 5 {
			lines, err := server.Grid(ctx, conn, find)
			if err != nil {
				return server.Ours(err, table)
			}
			missing := slices.DeleteFunc(slices.Clone(parts), func(part string) bool {
				return slices.ContainsFunc(lines, func(line []string) bool { return line[1] == part })
			})
			if len(missing) == 0 {
				found = rowsOf(lines, of, table)
			}
			if len(missing) == 0 || !create {
				return nil
			}
			own := "(" + hash + name + "'"
			_, err = alone(ctx, conn, "INSERT IGNORE INTO "+table+" (hash, name, part) VALUES "+own+
				strings.Join(missing, "'), "+own)+"')")
			// Two clients that add the rows at once may meet in a deadlock: one has to look again.
			if err != nil && server.Number(err) != server.LockDeadlock {
				return server.Ours(err, table)
			}
		}
		return fmt.Errorf("%w: the rows of %s in %s cannot be made", dialects.ErrNoRow, of.Hash, table)
	})
	return found, err
}

func rowsOf(lines [][]string, of dialects.Named, table string) dialects.Rows {
	found := dialects.Rows{
		Hash: of.Hash, Table: table, Numbers: make([]string, len(lines)),
	}
	for i, line := range lines {
		found.Numbers[i] = line[0]
	}
	return found
}

// literalsOf are the hash and, between commas, the name.
func literalsOf(of dialects.Named) (hash, name string, err error) {
	hash, err = sqltext.Literal(dialects.Value{Text: of.Hash})
	if err != nil || of.Name == "" {
		return hash, ", NULL, ", err
	}
	name, err = sqltext.Literal(dialects.Value{Text: of.Name})
	return hash, ", " + name + ", ", err
}

// readNow runs a query as ReadNow of a connection does.
func (k Keeper) readNow(ctx context.Context, table, query string) (answer []string, err error) {
	conn, err := k.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if answer, err = conn.ReadNow(ctx, query); err != nil {
		server.Destroy(conn.Conn) // with whatever was open on it
	}
	return answer, server.Ours(err, table)
}

// alone runs a statement that commits by itself. No lock outlives it: this process may be stopped
// right behind it, and the connection has no lease.
func alone(ctx context.Context, conn *sql.Conn, query string) (changed int64, err error) {
	if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		return 0, err
	}
	err = client.Setting(ctx, conn, func() error {
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
