package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/exclusion"
	"github.com/txlock/txlock/dialects/internal/interrupt"
)

// Check implements dialects.Driver. It proves exclusion on two connections.
func (d *Driver) Check(ctx context.Context, table string) error {
	return d.withConn(ctx, func(holder *sql.Conn) error {
		slots, err := d.slots(ctx, holder, table)
		if err != nil {
			return err
		}
		if err := refuseMultiPrimary(ctx, holder); err != nil {
			return err
		}
		quoted, err := quoteTable(table)
		if err != nil {
			return err
		}
		second, cancel := context.WithTimeout(ctx, interrupt.CleanUp)
		defer cancel()
		return d.withConn(second, func(rival *sql.Conn) error {
			return exclusion.Prove(second, slots, checkConn{holder, quoted}, checkConn{rival, quoted})
		})
	})
}

// multiPrimary has, for each kind of cluster, a query whether all its nodes take writes. A server
// that knows no such cluster does not know the variable either.
var multiPrimary = map[string]string{
	"Galera cluster": "SELECT @@wsrep_on",
	"replication group in multi-primary mode": "SELECT COALESCE(@@group_replication_group_name, '') <> '' AND NOT " +
		"@@group_replication_single_primary_mode",
}

// refuseMultiPrimary refuses clusters where two sessions on one node prove nothing: row locks do
// not reach the other nodes.
func refuseMultiPrimary(ctx context.Context, conn *sql.Conn) error {
	for cluster, question := range multiPrimary {
		var yes bool
		err := conn.QueryRowContext(ctx, question).Scan(&yes)
		if err == nil && yes {
			return fmt.Errorf("%w: this is a node of a %s, where row locks exclude the sessions of one node only",
				dialects.ErrUnsafeEngine, cluster)
		}
		if number(err) == 0 && err != nil { // the server has not answered
			return err
		}
	}
	return nil
}

// checkConn is a connection of Check.
type checkConn struct {
	conn  *sql.Conn
	table string
}

// TryLock implements exclusion.Conn.
func (c checkConn) TryLock(ctx context.Context, slot int, clause string) (int, bool, error) {
	if _, err := c.conn.ExecContext(ctx, "START TRANSACTION"); err != nil {
		return 0, false, exclusion.NoVerdict(err)
	}
	query := "SELECT slot FROM " + c.table + " WHERE slot = " + strconv.Itoa(slot) + " FOR UPDATE " + clause
	if " "+clause == skipLocked {
		query = onMariaDB(someWait) + query
	}
	column, err := firstColumn(ctx, c.conn, query)
	switch number(err) {
	case lockNowait, lockWaitTimeout: // MySQL's answer, MariaDB's
		return 0, true, nil
	case 0, noPrivilege, noColumnPrivilege:
		err = exclusion.NoVerdict(err)
	}
	return len(column), false, err
}

// TryShare implements exclusion.Conn.
func (c checkConn) TryShare(ctx context.Context, slot int, alone bool) (granted bool, err error) {
	mode := sharing
	if alone {
		mode = owning
	}
	if _, err := c.conn.ExecContext(ctx, "START TRANSACTION"); err != nil {
		return false, exclusion.NoVerdict(err)
	}
	column, err := firstColumn(ctx, c.conn, onMariaDB(someWait)+"SELECT slot FROM "+c.table+" WHERE slot = "+
		strconv.Itoa(slot)+" "+mode+skipLocked)
	switch number(err) {
	case 0, noPrivilege, noColumnPrivilege:
		err = exclusion.NoVerdict(err)
	}
	return len(column) == 1, err
}

// Rollback implements exclusion.Conn.
func (c checkConn) Rollback(ctx context.Context) error {
	_, err := c.conn.ExecContext(ctx, "ROLLBACK")
	return err
}
