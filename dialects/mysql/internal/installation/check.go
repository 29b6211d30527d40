package installation

import (
	"context"
	"database/sql"
	"strconv"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/exclusion"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// Check does what dialects.Driver promises. It proves exclusion on two connections, whose sessions
// have the lease of a lock.
func (i Installer) Check(ctx context.Context, table string, lease time.Duration) error {
	quoted, err := sqltext.QuoteTable(table)
	if err != nil {
		return err
	}
	i.pool.Forget() // a group may have another mode now
	return i.pool.With(ctx, func(holder *sql.Conn) error {
		slots, err := slotsOf(ctx, holder, table)
		if err != nil {
			return err
		}
		return exclusion.Beside(ctx, i.pool.With, func(rival *sql.Conn) error {
			proof, cancel := context.WithTimeout(ctx, exclusion.Patience)
			defer cancel()
			return leased(proof, holder, lease, func() error {
				return leased(proof, rival, lease, func() error {
					return exclusion.Prove(proof, slots, checkConn{holder, quoted, i.pool.Galera()},
						checkConn{rival, quoted, i.pool.Galera()}, !i.pool.Galera())
				})
			})
		})
	})
}

// leased runs work in a session that the server ends when its client falls silent. Then what the
// session holds is free.
func leased(ctx context.Context, conn *sql.Conn, lease time.Duration, work func() error) error {
	return client.Setting(ctx, conn, work, "wait_timeout", sqltext.Seconds(lease))
}

// checkConn is a connection of Check.
type checkConn struct {
	conn   *sql.Conn
	table  string
	galera bool
}

// Begin implements exclusion.Conn.
func (c checkConn) Begin(ctx context.Context) error {
	if c.galera { // what another node has locked or released is so here, too
		if err := caughtUp(ctx, c.conn); err != nil {
			return err
		}
	}
	_, err := c.conn.ExecContext(ctx, "START TRANSACTION")
	return err
}

// TryLock implements exclusion.Conn. Nothing stands in front of a row here.
func (c checkConn) TryLock(ctx context.Context, slot int, clause string, _ bool) (int, bool, error) {
	query := "SELECT slot FROM " + c.table + " WHERE slot = " + strconv.Itoa(slot) + " FOR UPDATE " + clause
	if " "+clause == sqltext.SkipLocked {
		query = sqltext.OnMariaDB(sqltext.SomeWait) + query
	}
	column, err := server.Column(ctx, c.conn, query)
	switch server.Number(err) {
	case server.LockNowait, server.LockWaitTimeout: // MySQL's answer, MariaDB's
		return 0, true, nil
	}
	if c.galera && err == nil && len(column) == 1 {
		_, err = c.conn.ExecContext(ctx, sqltext.CertifySQL(c.table, "slot", "taken", "",
			[]dialects.Value{{Text: column[0]}}))
		if server.IsDeadlock(err) { // another client was first
			return 0, true, nil
		}
	}
	return len(column), false, verdict(err)
}

// caughtUp returns when the node of Galera has applied what others have done. Inside of a
// transaction it would not wait.
func caughtUp(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "ROLLBACK")
	if err == nil {
		_, err = server.Column(ctx, conn, sqltext.OnMariaDB("wsrep_sync_wait=1")+"SELECT 1")
	}
	return err
}

// TryShare implements exclusion.Conn.
func (c checkConn) TryShare(ctx context.Context, slot int, alone bool) (granted bool, err error) {
	mode := sqltext.Sharing
	if alone {
		mode = sqltext.Owning
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
