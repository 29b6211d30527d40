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
	"github.com/txlock/txlock/internal/locktable"
)

// Slots implements dialects.Driver.
func (d *Driver) Slots(ctx context.Context, table string) (slots int, err error) {
	err = d.withConn(ctx, func(conn *sql.Conn) error {
		census, err := d.census(ctx, conn, table)
		if err != nil {
			return err
		}
		slots, err = census.Seeded(table)
		return err
	})
	return slots, err
}

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
			clean, cancel := detached(ctx)
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

// Schema implements dialects.Driver.
func (d *Driver) Schema(layout dialects.Layout) (string, error) {
	quoted, err := quoteTable(layout.Table)
	if err != nil {
		return "", err
	}
	create, seed := schema(quoted, layout.Slots)
	statements := []string{create, seed}
	if layout.Fencing {
		f, err := fenceOf(layout.Table)
		if err != nil {
			return "", err
		}
		statements = append(statements, f.schema()...)
	}
	return strings.Join(statements, ";\n\n") + ";\n", nil
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

// schema is the SQL text that creates and seeds a lock table. Every row carries the number of slots: rows that are
// missing show, and a client that has an old number finds no row to lock instead of the wrong one. Seeding is one
// statement, so that a crash leaves all of it or nothing; it skips rows that exist without waiting for their locks.
func schema(table string, slots int) (create, seed string) {
	create = "CREATE TABLE IF NOT EXISTS " + table + " (\n" +
		"    slot INT NOT NULL PRIMARY KEY,\n" +
		"    slots INT NOT NULL,\n" +
		"    CHECK (slot >= 0 AND slot < slots)\n) ENGINE=InnoDB"
	digits := ""
	for digit := range 16 {
		if digit > 0 {
			digits += " UNION ALL "
		}
		digits += "SELECT " + strconv.Itoa(digit)
		if digit == 0 {
			digits += " AS d"
		}
	}
	number, from, factor := "d0.d", "("+digits+") AS d0", 16
	for place := 1; factor < slots; place++ {
		number += fmt.Sprintf(" + %d * d%d.d", factor, place)
		from += fmt.Sprintf("\n  CROSS JOIN (%s) AS d%d", digits, place)
		factor *= 16
	}
	seed = fmt.Sprintf("INSERT INTO %s (slot, slots)\nSELECT n, %d FROM (SELECT %s AS n\n  FROM %s) AS numbers\n"+
		"WHERE n < %d AND NOT EXISTS (SELECT 1 FROM %s AS present WHERE present.slot = n)", table, slots, number, from, slots, table)
	return create, seed
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
