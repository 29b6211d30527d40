package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/internal/locktable"
)

// Slots implements dialects.Driver.
func (d *Driver) Slots(ctx context.Context, table string) (slots int, err error) {
	err = d.withConn(ctx, func(conn *sql.Conn) (err error) {
		slots, err = d.slots(ctx, conn, table)
		return err
	})
	return slots, err
}

// Install implements dialects.Driver. A named lock keeps other replicas out. CREATE TABLE commits
// at once, and the rows follow in one statement: a crash leaves an empty table, or a complete one.
func (d *Driver) Install(ctx context.Context, layout dialects.Layout) (installed int, err error) {
	quoted, err := quoteTable(layout.Table)
	if err != nil {
		return 0, err
	}
	beside, err := schemaBeside(layout.Table)
	if err != nil {
		return 0, err
	}
	hash := fnv.New64a()
	hash.Write([]byte(quoted))
	installLock := fmt.Sprintf("txlock_install_%x", hash.Sum64())
	err = d.withConn(ctx, func(conn *sql.Conn) (err error) {
		if err := getLock(ctx, conn, installLock); err != nil {
			return err
		}
		defer func() {
			clean, cancel := interrupt.Detached(ctx)
			defer cancel()
			if _, failed := firstColumn(clean, conn, "SELECT RELEASE_LOCK('"+installLock+"')"); failed != nil {
				destroy(conn) // which releases it
			}
		}()
		if installed, err = d.seed(ctx, conn, layout.Table, quoted, layout.Slots); err != nil {
			return err
		}
		for _, create := range beside {
			if _, err := conn.ExecContext(ctx, create); err != nil {
				return err
			}
		}
		return nil
	})
	return installed, err
}

// Schema implements dialects.Driver.
func (d *Driver) Schema(layout dialects.Layout) (string, error) {
	quoted, err := quoteTable(layout.Table)
	if err != nil {
		return "", err
	}
	beside, err := schemaBeside(layout.Table)
	create, seed := schema(quoted, layout.Slots)
	return strings.Join(append([]string{create, seed}, beside...), ";\n\n") + ";\n", err
}

func getLock(ctx context.Context, conn *sql.Conn, name string) error {
	for {
		granted, err := firstColumn(ctx, conn, "SELECT GET_LOCK('"+name+"', 5)")
		if err != nil {
			return fmt.Errorf("wait for another Install: %w", err)
		}
		if granted[0] == "1" {
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
	// The transaction is our own, whatever the session's autocommit is. It runs at READ COMMITTED,
	// so that reading which rows exist locks none. The census above may have begun another.
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
	// Not tx.Commit, which on a pool of Open releases the savepoint of a lock first.
	if _, err := tx.ExecContext(ctx, "COMMIT"); err != nil {
		return 0, errors.Join(err, tx.Rollback())
	}
	if err := tx.Rollback(); err != nil {
		return 0, err
	}
	return d.slots(ctx, conn, table)
}

// schemaBeside creates what stands beside the lock table: the fence, and the leaders.
func schemaBeside(table string) ([]string, error) {
	f, err := fenceOf(table)
	if err != nil {
		return nil, err
	}
	leaders, err := leadersOf(table)
	return append(f.schema(), leadersSchema(leaders)), err
}

// schema is the SQL text that creates and seeds a lock table. Every row states the number of slots:
// missing rows show, and a client with an old number finds no row to lock instead of a wrong one.
// Seeding is one statement, so that a crash leaves all of it or nothing. It skips rows that exist
// without waiting for their locks. Slots is 0 when only create is used.
func schema(table string, slots int) (create, seed string) {
	create = "CREATE TABLE IF NOT EXISTS " + table + " (\n" +
		"    slot INT NOT NULL PRIMARY KEY,\n" +
		"    slots INT NOT NULL,\n" +
		"    CHECK (slot >= 0 AND slot < slots)\n) ENGINE=InnoDB"
	digits := "SELECT 0 AS d"
	for digit := 1; digit < 16; digit++ {
		digits += " UNION ALL SELECT " + strconv.Itoa(digit)
	}
	number, from, factor := "d0.d", "("+digits+") AS d0", 16
	for place := 1; factor < slots; place++ {
		number += fmt.Sprintf(" + %d * d%d.d", factor, place)
		from += fmt.Sprintf("\n  CROSS JOIN (%s) AS d%d", digits, place)
		factor *= 16
	}
	seed = fmt.Sprintf("INSERT INTO %s (slot, slots)\nSELECT n, %d FROM (SELECT %s AS n\n  FROM %s) AS numbers\n"+
		"WHERE n < %[2]d AND NOT EXISTS (SELECT 1 FROM %[1]s AS present WHERE present.slot = n)",
		table, slots, number, from)
	return create, seed
}

func (d *Driver) slots(ctx context.Context, conn *sql.Conn, table string) (int, error) {
	census, err := d.census(ctx, conn, table)
	if err != nil {
		return 0, err
	}
	return census.Seeded(table)
}

// census reads what a lock table says of itself, before the first of its rows is locked. On the way
// it learns whether the server shows the variables of sessions.
func (d *Driver) census(ctx context.Context, conn *sql.Conn, table string) (c locktable.Census, err error) {
	quoted, err := quoteTable(table)
	if err != nil {
		return c, err
	}
	var shows bool // not in the statement below: there MariaDB answers 0 for a table with rows
	switch err := conn.QueryRowContext(ctx, "SELECT @@performance_schema").Scan(&shows); {
	case err == nil:
		d.mute.Store(!shows)
	case number(err) == 0: // the server has not answered
		return c, err
	}
	err = conn.QueryRowContext(ctx, "SELECT COUNT(*), COALESCE(MIN(slot), 0), COALESCE(MAX(slot), 0), "+
		"COALESCE(MIN(slots), 0), COALESCE(MAX(slots), 0) FROM "+quoted).
		Scan(&c.Rows, &c.MinSlot, &c.MaxSlot, &c.MinSlots, &c.MaxSlots)
	return c, classify(err, dialects.Request{Table: table, Slots: 1})
}
