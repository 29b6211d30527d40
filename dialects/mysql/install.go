package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/exclusion"
	"github.com/txlock/txlock/internal/locktable"
)

// Install implements dialects.Driver. A named lock keeps other replicas out. CREATE TABLE commits
// at once; the rows follow in one statement, so that a crash leaves an empty table, or a complete
// one.
func (d *Driver) Install(ctx context.Context, layout dialects.Layout) (installed int, err error) {
	quoted, err := quoteTable(layout.Table)
	if err != nil {
		return 0, err
	}
	var fencing []string
	if layout.Fencing {
		f, err := fenceOf(layout.Table)
		if err != nil {
			return 0, err
		}
		fencing = f.schema()
	}
	hash := fnv.New64a()
	hash.Write([]byte(quoted))
	turn := fmt.Sprintf("txlock_install_%x", hash.Sum64())
	err = d.withConn(ctx, func(conn *sql.Conn) (err error) {
		if err := waitForTurn(ctx, conn, turn); err != nil {
			return err
		}
		defer func() {
			clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
			defer cancel()
			if _, failed := firstColumn(clean, conn, "SELECT RELEASE_LOCK('"+turn+"')"); failed != nil {
				destroy(conn) // which releases it
			}
		}()
		installed, err = d.seed(ctx, conn, layout.Table, quoted, layout.Slots)
		for _, create := range fencing {
			if err == nil {
				_, err = conn.ExecContext(ctx, create)
			}
		}
		return err
	})
	return installed, err
}

func waitForTurn(ctx context.Context, conn *sql.Conn, turn string) error {
	for {
		var granted sql.NullInt64
		if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK('"+turn+"', 5)").Scan(&granted); err != nil {
			return fmt.Errorf("wait for another Install: %w", err)
		}
		if granted.Int64 == 1 {
			return nil
		}
	}
}

func (d *Driver) seed(ctx context.Context, conn *sql.Conn, table, quoted string, slots int) (int, error) {
	census, err := d.census(ctx, conn, table)
	if number(err) == noSuchTable {
		create, _ := schema(quoted, slots)
		if _, err = conn.ExecContext(ctx, create); err != nil {
			return 0, fmt.Errorf("create table: %w", err)
		}
		census, err = d.census(ctx, conn, table)
	}
	if err != nil {
		return 0, err
	}
	wanted, err := census.Wanted(table, slots)
	if err != nil {
		return 0, err
	}
	if _, err := census.Seeded(table); err == nil {
		return wanted, nil
	}
	// A transaction of our own, whatever the session's autocommit is; at READ COMMITTED, so that
	// reading which rows are there locks none. The census above may have begun one.
	if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		return 0, err
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return 0, err
	}
	_, insert := schema(quoted, wanted)
	if _, err := tx.ExecContext(ctx, insert); err != nil {
		return 0, errors.Join(fmt.Errorf("seed table: %w", err), tx.Rollback())
	}
	// Not tx.Commit, which on a pool of Open commits work under a lock.
	if _, err := tx.ExecContext(ctx, "COMMIT"); err != nil {
		return 0, errors.Join(err, tx.Rollback())
	}
	if err := tx.Rollback(); err != nil {
		return 0, err
	}
	if census, err = d.census(ctx, conn, table); err != nil {
		return 0, err
	}
	return census.Seeded(table)
}

// census counts the slots, before the first of them is locked, and learns on the way whether the
// server shows what sessions say of themselves.
func (d *Driver) census(ctx context.Context, conn *sql.Conn, table string) (locktable.Census, error) {
	quoted, err := quoteTable(table)
	if err != nil {
		return locktable.Census{}, err
	}
	var shows bool // not in the statement below: of a table with rows, MariaDB answers 0 there
	switch err := conn.QueryRowContext(ctx, "SELECT @@performance_schema").Scan(&shows); {
	case err == nil:
		d.mute.Store(!shows)
	case number(err) == 0: // not what the server says
		return locktable.Census{}, err
	}
	var c locktable.Census
	err = conn.QueryRowContext(ctx, "SELECT COUNT(*), COALESCE(MIN(slot), 0), COALESCE(MAX(slot), 0), "+
		"COALESCE(MIN(slots), 0), "+
		"COALESCE(MAX(slots), 0) FROM "+quoted).Scan(&c.Rows, &c.MinSlot, &c.MaxSlot, &c.MinSlots, &c.MaxSlots)
	return c, classify(err, dialects.Request{Table: table, Slots: 1})
}

// Check implements dialects.Driver.
func (d *Driver) Check(ctx context.Context, table string) error {
	return d.withConn(ctx, func(holder *sql.Conn) error {
		census, err := d.census(ctx, holder, table)
		if err != nil {
			return err
		}
		slots, err := census.Seeded(table)
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
		second, cancel := context.WithTimeout(ctx, cleanUpTimeout)
		defer cancel()
		return d.withConn(second, func(rival *sql.Conn) error {
			return exclusion.Prove(second, slots, probe{holder, quoted}, probe{rival, quoted})
		})
	})
}

// multiPrimary are questions whether all nodes of a cluster take writes, by what kind of cluster it
// is then. Servers that know no such cluster do not know the variables either.
var multiPrimary = map[string]string{
	"Galera cluster": "SELECT @@wsrep_on",
	"replication group in multi-primary mode": "SELECT COALESCE(@@group_replication_group_name, '') <> '' AND NOT " +
		"@@group_replication_single_primary_mode",
}

// refuseMultiPrimary: two sessions on one node prove nothing about the other nodes, to which row
// locks do not reach.
func refuseMultiPrimary(ctx context.Context, conn *sql.Conn) error {
	for cluster, question := range multiPrimary {
		var yes bool
		err := conn.QueryRowContext(ctx, question).Scan(&yes)
		if err == nil && yes {
			return fmt.Errorf("%w: this is a node of a %s, where row locks exclude the sessions of one node only",
				dialects.ErrUnsafeEngine, cluster)
		}
		if number(err) == 0 && err != nil { // not what the server says
			return err
		}
	}
	return nil
}

type probe struct {
	conn  *sql.Conn
	table string
}

func (p probe) TryLock(ctx context.Context, slot int, clause string) (int, bool, error) {
	if _, err := p.conn.ExecContext(ctx, "START TRANSACTION"); err != nil {
		return 0, false, exclusion.NoVerdict(err)
	}
	query := "SELECT slot FROM " + p.table + " WHERE slot = " + strconv.Itoa(slot) + " FOR UPDATE " + clause
	if " "+clause == skipLocked {
		query = onMariaDB(someWait) + query
	}
	column, err := firstColumn(ctx, p.conn, query)
	switch number(err) {
	case lockNowait, lockWaitTimeout: // MySQL's answer, MariaDB's
		return 0, true, nil
	case 0, noPrivilege, noColumnPrivilege:
		err = exclusion.NoVerdict(err)
	}
	return len(column), false, err
}

func (p probe) Rollback(ctx context.Context) error {
	_, err := p.conn.ExecContext(ctx, "ROLLBACK")
	return err
}
