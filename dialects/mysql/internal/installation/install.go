// Package installation makes the lock table and those beside it, and finds out whether locks work
// there. It takes no lock of a caller's.
package installation

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
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/kinds"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// Installer does what dialects.Driver promises of the tables.
type Installer struct{ pool *client.Pool }

// New returns an Installer, and sends nothing.
func New(pool *client.Pool) Installer { return Installer{pool} }

// Find does what dialects.Driver promises.
func (i Installer) Find(ctx context.Context, table string) (found dialects.LockTable, err error) {
	err = i.pool.With(ctx, func(conn *sql.Conn) (err error) {
		if i.pool.Galera() { // else it may not have the rows of an Install on another node
			if err := caughtUp(ctx, conn); err != nil {
				return server.Ours(err, table)
			}
		}
		edges, err := census(ctx, conn, table, true)
		if err != nil {
			return err
		}
		if found.Slots, err = edges.Seeded(table); err == nil {
			found.Name, err = withDatabase(ctx, conn, table)
		}
		if err == nil {
			found.Kinds, err = kinds.Of(found.Name, i.pool.Galera())
		}
		return err
	})
	return found, err
}

// withDatabase adds to a name without a database the one that it means on the connection.
func withDatabase(ctx context.Context, conn *sql.Conn, table string) (string, error) {
	quoted, err := sqltext.QuoteTable(table)
	if err != nil || strings.Contains(quoted, "`.`") {
		return quoted, err
	}
	database, err := server.Column(ctx, conn, "SELECT REPLACE(DATABASE(), '`', '``')")
	return "`" + strings.Join(database, "") + "`." + quoted, err
}

// Install does what dialects.Driver promises. A named lock keeps other replicas out, for the lease
// at most when this one falls silent. CREATE TABLE commits at once, so the tables come first and
// the rows follow in one statement. When these are refused, the tables that this call has created
// are dropped, unless there were slots before, and somebody may use the tables beside. Where the
// connection is lost, by a crash or a ctx that ends in the middle, empty tables stay, and the next
// Install completes them. On Galera, a lock of one node's keeps nobody out on another: of two
// replicas that seed at once, one finds in a second try that all is there.
func (i Installer) Install(ctx context.Context, layout dialects.Layout) error {
	tables, err := tablesOf(layout.Table)
	if err != nil {
		return err
	}
	hash := fnv.New64a()
	hash.Write([]byte(tables[0].name))
	installLock := fmt.Sprintf("txlock_install_%x", hash.Sum64())
	return i.pool.With(ctx, func(conn *sql.Conn) error {
		return leased(ctx, conn, layout.Lease, func() error {
			if err := getLock(ctx, conn, installLock); err != nil {
				return err
			}
			defer func() {
				clean, cancel := interrupt.Detached(ctx)
				defer cancel()
				if _, failed := server.Column(clean, conn, "SELECT RELEASE_LOCK('"+installLock+"')"); failed != nil {
					server.Destroy(conn) // which releases it
				}
			}()
			for again := 0; ; again++ {
				err := complete(ctx, conn, layout, tables)
				if !overtaken(err) || again == 3 {
					return err
				}
			}
		})
	})
}

// overtaken says that the replica that runs Install on another node of Galera has seeded meanwhile.
func overtaken(err error) bool {
	return server.IsDeadlock(err) || server.Number(err) == server.DuplicateKey
}

// complete creates and seeds what is missing.
func complete(ctx context.Context, conn *sql.Conn, layout dialects.Layout, tables []table) error {
	quoted, lacking := tables[0].name, tables[1:]
	before, err := census(ctx, conn, layout.Table, false)
	if server.Number(err) == server.NoSuchTable {
		lacking, err = tables, nil
	}
	if err != nil {
		return err
	}
	wanted, err := before.Wanted(layout.Table, layout.Slots)
	if err != nil {
		return err
	}
	made, err := create(ctx, conn, lacking)
	if err == nil {
		err = runsToInnoDB(ctx, conn, layout.Table)
	}
	if err == nil {
		err = seedClaims(ctx, conn, layout.Table)
	}
	if _, seeded := before.Seeded(layout.Table); seeded == nil && err == nil {
		return nil
	}
	if err == nil {
		err = seed(ctx, conn, quoted, wanted)
	}
	if err == nil {
		_, err = slotsOf(ctx, conn, layout.Table)
		return err
	}
	if len(made) > 0 && before.Rows == 0 && !overtaken(err) {
		clean, cancel := interrupt.Detached(ctx)
		defer cancel()
		_, failed := conn.ExecContext(clean, "DROP TABLE "+strings.Join(made, ", "))
		err = errors.Join(err, failed)
	}
	return err
}

// create creates those of the tables that do not exist, and returns the names of those that it has
// created, after an error too.
func create(ctx context.Context, conn *sql.Conn, tables []table) (made []string, err error) {
	for _, t := range tables {
		_, err := conn.ExecContext(ctx, "SELECT "+t.column+" FROM "+t.name+" LIMIT 0")
		if server.Number(err) == server.UnknownColumn {
			return made, locktable.Older(t.name, err)
		}
		if err == nil { // it exists; not every engine has the same error for that
			continue
		}
		_, err = conn.ExecContext(ctx, "CREATE TABLE "+t.name+t.definition)
		switch {
		case err == nil:
			made = append(made, t.name)
		case server.Number(err) != server.TableExists:
			return made, fmt.Errorf("create table: %w", err)
		}
	}
	return made, nil
}

// runsToInnoDB changes the table of runs, if an earlier version has made it in memory.
func runsToInnoDB(ctx context.Context, conn *sql.Conn, locks string) error {
	table, err := sqltext.Beside(locks, locktable.Runs)
	if err != nil {
		return err
	}
	var name, definition string
	err = conn.QueryRowContext(ctx, "SHOW CREATE TABLE "+table).Scan(&name, &definition)
	if err == nil && strings.Contains(definition, ") ENGINE=MEMORY") {
		_, err = conn.ExecContext(ctx, "ALTER TABLE "+table+" ENGINE=InnoDB")
	}
	return err
}

// Schema does what dialects.Driver promises.
func (Installer) Schema(layout dialects.Layout) (string, error) {
	tables, err := tablesOf(layout.Table)
	if err != nil {
		return "", err
	}
	statements := make([]string, len(tables))
	for i, t := range tables {
		statements[i] = "CREATE TABLE IF NOT EXISTS " + t.name + t.definition
	}
	statements[0] += ";\n\n" + seedSQL(tables[0].name, layout.Slots)
	epochs, _ := sqltext.Beside(layout.Table, locktable.Epochs)
	claims, _ := sqltext.Beside(layout.Table, locktable.Claims)
	statements = append(statements, countClaims(epochs, claims))
	return strings.Join(statements, ";\n\n") + ";\n", nil
}

func getLock(ctx context.Context, conn *sql.Conn, name string) error {
	for {
		granted, err := server.Column(ctx, conn, "SELECT GET_LOCK('"+name+"', 5)")
		if err != nil {
			return fmt.Errorf("wait for another Install: %w", err)
		}
		if granted[0] == "1" {
			return nil
		}
	}
}

// seed completes the rows of a table, in one statement. It runs at READ COMMITTED: at another level
// it would wait for the locks on the slots that exist.
func seed(ctx context.Context, conn *sql.Conn, quoted string, wanted int) error {
	return insert(ctx, conn, seedSQL(quoted, wanted))
}

func seedClaims(ctx context.Context, conn *sql.Conn, locks string) error {
	epochs, _ := sqltext.Beside(locks, locktable.Epochs)
	claims, err := sqltext.Beside(locks, locktable.Claims)
	if err != nil {
		return err
	}
	counts, err := server.Column(ctx, conn, "SELECT token FROM "+claims+" WHERE claim = "+noClaim)
	if err != nil || len(counts) > 0 {
		return err
	}
	return insert(ctx, conn, countClaims(epochs, claims))
}

// insert runs in a transaction of its own, whatever the session's autocommit is. What was read may
// have begun another.
func insert(ctx context.Context, conn *sql.Conn, query string) error {
	if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		return err
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, query); err != nil {
		return errors.Join(fmt.Errorf("seed table: %w", err), tx.Rollback())
	}
	// Not tx.Commit, which on a pool of Open releases the savepoint of a lock first.
	if _, err := tx.ExecContext(ctx, "COMMIT"); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Rollback()
}

// seedSQL inserts those slots that are absent. It is one statement, so that a crash leaves all of
// them or none.
func seedSQL(table string, slots int) string {
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
	return fmt.Sprintf("INSERT INTO %s (slot, slots)\nSELECT n, %d FROM (SELECT %s AS n\n  FROM %s) AS numbers\n"+
		"WHERE n < %[2]d AND NOT EXISTS (SELECT 1 FROM %[1]s AS present WHERE present.slot = n)",
		table, slots, number, from)
}

func slotsOf(ctx context.Context, conn *sql.Conn, table string) (int, error) {
	counted, err := census(ctx, conn, table, false)
	if err != nil {
		return 0, err
	}
	return counted.Seeded(table)
}

// census asks by all rows, or by those at the edges.
func census(ctx context.Context, conn *sql.Conn, table string, edges bool) (c locktable.Census, err error) {
	quoted, err := sqltext.QuoteTable(table)
	if err != nil {
		return c, err
	}
	answer, err := server.Column(ctx, conn, locktable.CensusSQL(quoted, edges))
	if err != nil {
		return c, server.Ours(err, table)
	}
	return locktable.CensusOf(table, answer)
}
