package installation

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/txlock/txlock/dialects/internal/exclusion"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// Check does what dialects.Driver promises. It proves exclusion on two connections, whose sessions
// have the lease of a lock.
func Check(ctx context.Context, pool *client.Pool, table string, lease time.Duration) error {
	quoted, err := sqltext.QuoteTable(table)
	if err != nil {
		return err
	}
	pool.Forget() // a group may have another mode now
	return pool.With(ctx, func(holder *sql.Conn) error {
		slots, err := slotsOf(ctx, holder, table)
		if err != nil {
			return err
		}
		second, cancel := context.WithTimeout(ctx, interrupt.CleanUp)
		defer cancel()
		return pool.With(second, func(rival *sql.Conn) error {
			proof, cancel := context.WithTimeout(ctx, exclusion.Patience)
			defer cancel()
			return leased(proof, holder, lease, func() error {
				return leased(proof, rival, lease, func() error {
					return exclusion.Prove(proof, slots, checkConn{holder, quoted}, checkConn{rival, quoted})
				})
			})
		})
	})
}

// leased runs work in a session that the server ends when its client falls silent. Then what the
// session holds is free.
func leased(ctx context.Context, conn *sql.Conn, lease time.Duration, work func() error) error {
	const kept = "@txlock_wait_timeout"
	_, err := conn.ExecContext(ctx, fmt.Sprintf("SET %s = @@wait_timeout, wait_timeout = %s", kept,
		sqltext.Seconds(lease)))
	if err == nil {
		err = work()
	}
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	_, failed := conn.ExecContext(clean, "SET wait_timeout = COALESCE("+kept+", @@wait_timeout), "+kept+" = NULL")
	if failed != nil {
		server.Destroy(conn)
	}
	return err
}

// checkConn is a connection of Check.
type checkConn struct {
	conn  *sql.Conn
	table string
}

// TryLock implements exclusion.Conn. Nothing stands in front of a row here.
func (c checkConn) TryLock(ctx context.Context, slot int, clause string, _ bool) (int, bool, error) {
	if _, err := c.conn.ExecContext(ctx, "START TRANSACTION"); err != nil {
		return 0, false, exclusion.NoVerdict(err)
	}
	query := "SELECT slot FROM " + c.table + " WHERE slot = " + strconv.Itoa(slot) + " FOR UPDATE " + clause
	if " "+clause == sqltext.SkipLocked {
		query = sqltext.OnMariaDB(sqltext.SomeWait) + query
	}
	column, err := server.Column(ctx, c.conn, query)
	switch server.Number(err) {
	case server.LockNowait, server.LockWaitTimeout: // MySQL's answer, MariaDB's
		return 0, true, nil
	}
	return len(column), false, verdict(err)
}

// TryShare implements exclusion.Conn.
func (c checkConn) TryShare(ctx context.Context, slot int, alone bool) (granted bool, err error) {
	mode := sqltext.Sharing
	if alone {
		mode = sqltext.Owning
	}
	if _, err := c.conn.ExecContext(ctx, "START TRANSACTION"); err != nil {
		return false, exclusion.NoVerdict(err)
	}
	column, err := server.Column(ctx, c.conn, sqltext.OnMariaDB(sqltext.SomeWait)+"SELECT slot FROM "+c.table+
		" WHERE slot = "+strconv.Itoa(slot)+" "+mode+sqltext.SkipLocked)
	return len(column) == 1, verdict(err)
}

// verdict marks errors that say nothing about the engine.
func verdict(err error) error {
	switch server.Number(err) {
	case 0, server.NoPrivilege, server.NoColumnPrivilege, server.ServerShutdown, server.ConnectionKilled,
		server.SessionKilled, server.IdleTooLong:
		return exclusion.NoVerdict(err)
	}
	return err
}

// Rollback implements exclusion.Conn.
func (c checkConn) Rollback(ctx context.Context) error {
	_, err := c.conn.ExecContext(ctx, "ROLLBACK")
	return err
}
