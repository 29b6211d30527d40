package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
)

// Inspect implements dialects.Inspector. MySQL lists every row lock in
// performance_schema.data_locks. MariaDB's views name only rows that somebody waits for: see
// findHolders.
func (d *Driver) Inspect(ctx context.Context, of dialects.Inspection) (states []dialects.RowState, err error) {
	switch table := of.Table.Name; of.Kind {
	case dialects.KindSemaphore:
		return d.inspectPermits(ctx, table, of.Names)
	case dialects.KindElection:
		return d.inspectElections(ctx, table, of.Names)
	default:
		err = d.withConn(ctx, func(conn *sql.Conn) error {
			p, err := newPicture(ctx, conn, table)
			if err != nil {
				return err
			}
			if p.mariadb {
				err = d.lookAtMariaDB(ctx, conn, p, of.Table.Slots, of.Slots)
			} else {
				err = lookAtMySQL(ctx, conn, p, of.Slots == nil)
			}
			states = p.queues()
			return explainPrivilege(err, p.mariadb)
		})
		return states, err
	}
}

// End implements dialects.Inspector.
func (d *Driver) End(ctx context.Context, party dialects.Party) error {
	return d.withConn(ctx, func(conn *sql.Conn) error {
		mariadb, err := isMariaDB(ctx, conn)
		if err != nil {
			return err
		}
		still := isInMySQL
		if mariadb {
			still = d.isInMariaDB
		}
		same, err := still(ctx, conn, party)
		if err != nil {
			return explainPrivilege(err, mariadb)
		}
		if !same {
			return dialects.ErrChanged
		}
		return endSession(ctx, conn, party.Session, mariadb)
	})
}

// endSession ends a session, and waits until the server has rolled its transaction back.
func endSession(ctx context.Context, conn *sql.Conn, session string, mariadb bool) error {
	const patience = 5 * time.Second
	// The privilege to see the locks also shows the sessions of all users.
	left := "SELECT PROCESSLIST_ID FROM performance_schema.threads WHERE PROCESSLIST_ID = "
	if mariadb {
		left = "SELECT ID FROM information_schema.processlist WHERE ID = "
	}
	_, err := conn.ExecContext(ctx, "KILL "+session)
	switch server.Number(err) {
	case server.NoSuchThread:
		return dialects.ErrChanged
	case server.KillDenied:
		return fmt.Errorf("only the session's own user, and users with CONNECTION_ADMIN (MariaDB: CONNECTION ADMIN), "+
			"may end it; on MySQL that takes SYSTEM_USER as well when the session's user has it, as root does: %w", err)
	}
	if err != nil {
		return err
	}
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(patience); ; {
		found, err := server.Grid(ctx, conn, left+session)
		if err != nil || len(found) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("session %s was told to end, and had not done so after %v", session, patience)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("session %s was told to end, and had not done so yet: %w", session, ctx.Err())
		}
	}
}

// explainPrivilege says which privilege the views require.
func explainPrivilege(err error, mariadb bool) error {
	var missing string
	switch server.Number(err) {
	default:
		return err
	case server.NoPrivilege, server.NoDatabasePrivilege:
		missing = "GRANT SELECT ON performance_schema.* TO …"
	case server.NoGlobalPrivilege:
		missing = "GRANT PROCESS ON *.* TO …"
	}
	if mariadb {
		missing = "GRANT PROCESS ON *.* TO …"
	}
	return fmt.Errorf("this user may not see who holds locks (%s): %w", missing, err)
}

func isMariaDB(ctx context.Context, conn *sql.Conn) (bool, error) {
	// Every release of MariaDB has its name in @@version.
	found, err := firstColumn(ctx, conn, "SELECT @@version LIKE '%MariaDB%'")
	return len(found) == 1 && found[0] == "1", err
}
