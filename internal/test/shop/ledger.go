// Package shop is a shop on a database: real orders, tables of inventory, bookings and decisions,
// the work on orders, and an audit of the tables. The caller chooses the lock that protects the
// work.
package shop

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
)

// Outcome is the outcome of an order.
type Outcome string

// The outcomes.
const (
	Booked  Outcome = "booked"
	Refused Outcome = "refused"
	Known   Outcome = "known" // decided in an earlier submission
)

// The table with the stock of each article, and its unique column. They are for locks on the
// articles themselves.
const (
	Inventory       = "shop_inventory"
	InventoryColumn = "sku"
)

// Ledger is the tables of the shop in one database.
type Ledger struct {
	db       *sql.DB
	numbered bool // placeholders are $1, $2, as in PostgreSQL
}

// New is a shop on PostgreSQL, or on MySQL or MariaDB.
func New(db *sql.DB, postgres bool) Ledger { return Ledger{db, postgres} }

// Decide is the work on orders, one after the other in memory. It books an order if all of it is in
// stock, and refuses it otherwise. It reads first and writes afterwards, so it goes wrong when
// another does the same in between.
func (l Ledger) Decide(ctx context.Context, tx *sql.Tx, orders ...Order) ([]Outcome, error) {
	decided, stock, err := l.look(ctx, tx, orders)
	if err != nil {
		return nil, err
	}
	outcomes := make([]Outcome, len(orders))
	var booked []Order
	var decisions []Decision
	sold := make(map[string]int)
	for i, o := range orders {
		switch {
		case decided[o.ID]:
			outcomes[i] = Known
			continue
		case o.fits(stock):
			outcomes[i] = Booked
			booked = append(booked, o)
			for _, line := range o.Lines {
				stock[line.SKU] -= line.Quantity
				sold[line.SKU] += line.Quantity
			}
		default:
			outcomes[i] = Refused
		}
		decided[o.ID] = true
		decisions = append(decisions, Decision{o.ID, outcomes[i]})
	}
	if decisions == nil {
		return outcomes, nil
	}
	return outcomes, l.settle(ctx, tx, booked, sold, decisions)
}

// No table has a constraint that would prevent an error, because the audit must find it.
var sqlTables = []string{
	dropTables,
	"CREATE TABLE shop_inventory (sku VARCHAR(20) PRIMARY KEY, stock INT NOT NULL)",
	"CREATE TABLE shop_bookings (order_id VARCHAR(20) NOT NULL, sku VARCHAR(20) NOT NULL, quantity INT NOT NULL)",
	"CREATE TABLE shop_decisions (order_id VARCHAR(20) NOT NULL, decision VARCHAR(20) NOT NULL)",
	"CREATE INDEX shop_decided ON shop_decisions (order_id)",
}

// Open creates new tables with an opening stock.
func (l Ledger) Open(ctx context.Context, stock map[string]int) error {
	for _, statement := range sqlTables {
		if _, err := l.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	var values []any
	for sku, quantity := range stock {
		values = append(values, sku, quantity)
	}
	_, err := l.db.ExecContext(ctx, l.text("INSERT INTO shop_inventory (sku, stock) VALUES "+repeated(
		"(?, ?)", len(stock))), values...)
	return err
}

const dropTables = "DROP TABLE IF EXISTS shop_inventory, shop_bookings, shop_decisions"

// Drop removes the tables, and another one.
func (l Ledger) Drop(ctx context.Context, other string) error {
	_, err := l.db.ExecContext(ctx, dropTables+", "+other)
	return err
}

// Books reads all tables.
func (l Ledger) Books(ctx context.Context) (b Books, err error) {
	if b.Stock, err = readStock(ctx, l.db, "SELECT sku, stock FROM shop_inventory"); err != nil {
		return b, err
	}
	bookings := "SELECT order_id, sku, quantity FROM shop_bookings"
	err = each(ctx, l.db, bookings, nil, func(rows *sql.Rows) error {
		var one Booking
		err := rows.Scan(&one.Order, &one.SKU, &one.Quantity)
		b.Bookings = append(b.Bookings, one)
		return err
	})
	if err != nil {
		return b, err
	}
	err = each(ctx, l.db, "SELECT order_id, decision FROM shop_decisions", nil, func(rows *sql.Rows) error {
		var one Decision
		err := rows.Scan(&one.Order, &one.Outcome)
		b.Decisions = append(b.Decisions, one)
		return err
	})
	return b, err
}

// look reads which of the orders are decided, and the stock of their articles.
func (l Ledger) look(ctx context.Context, tx *sql.Tx, orders []Order) (
	decided map[string]bool, stock map[string]int, err error,
) {
	decided = make(map[string]bool)
	var ids []any
	for _, o := range orders {
		ids = append(ids, o.ID)
	}
	query := l.text("SELECT order_id FROM shop_decisions WHERE order_id IN (" + repeated("?", len(orders)) + ")")
	err = each(ctx, tx, query, ids, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		decided[id] = true
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	skus := SKUs(orders)
	query = l.text("SELECT sku, stock FROM shop_inventory WHERE sku IN (" + repeated("?", len(skus)) + ")")
	stock, err = readStock(ctx, tx, query, skus...)
	return decided, stock, err
}

// settle books and refuses orders. Sold is what those that are booked take from the stock.
func (l Ledger) settle(ctx context.Context, tx *sql.Tx, booked []Order, sold map[string]int,
	decisions []Decision,
) error {
	if len(booked) > 0 {
		var taken, lines []any
		for _, sku := range slices.Sorted(maps.Keys(sold)) { // in one order, or those without a lock would deadlock
			taken = append(taken, sku, sold[sku])
		}
		for _, o := range booked {
			for _, line := range o.Lines {
				lines = append(lines, o.ID, line.SKU, line.Quantity)
			}
		}
		// The rows are there, so this only updates them, each by a search for its key.
		onExisting := " ON DUPLICATE KEY UPDATE stock = stock - VALUES(stock)"
		if l.numbered {
			onExisting = " ON CONFLICT (sku) DO UPDATE SET stock = shop_inventory.stock - excluded.stock"
		}
		update := "INSERT INTO shop_inventory (sku, stock) VALUES " + repeated("(?, ?)", len(sold)) + onExisting
		if _, err := tx.ExecContext(ctx, l.text(update), taken...); err != nil {
			return err
		}
		insert := "INSERT INTO shop_bookings (order_id, sku, quantity) VALUES " + repeated("(?, ?, ?)", len(lines)/3)
		if _, err := tx.ExecContext(ctx, l.text(insert), lines...); err != nil {
			return err
		}
	}
	var values []any
	for _, d := range decisions {
		values = append(values, d.Order, string(d.Outcome))
	}
	insert := "INSERT INTO shop_decisions (order_id, decision) VALUES " + repeated("(?, ?)", len(decisions))
	_, err := tx.ExecContext(ctx, l.text(insert), values...)
	return err
}

// Transact runs work in a plain transaction at READ COMMITTED.
func (l Ledger) Transact(ctx context.Context, work func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := l.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	if err := work(ctx, tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// Deadlocked reports whether the database broke a deadlock by this error.
func (l Ledger) Deadlocked(err error) bool {
	const deadlockFound, deadlockDetected = 1213, "40P01"
	var ofMySQL *driver.MySQLError
	var ofPostgres *pgconn.PgError
	return errors.As(err, &ofMySQL) && ofMySQL.Number == deadlockFound ||
		errors.As(err, &ofPostgres) && ofPostgres.Code == deadlockDetected
}

// text returns a statement with the placeholders of the database.
func (l Ledger) text(statement string) string {
	if !l.numbered {
		return statement
	}
	var b strings.Builder
	for i, part := range strings.Split(statement, "?") {
		if i > 0 {
			b.WriteString("$" + strconv.Itoa(i))
		}
		b.WriteString(part)
	}
	return b.String()
}

// querier is a *sql.DB or a *sql.Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func readStock(ctx context.Context, from querier, query string, args ...any) (map[string]int, error) {
	stock := make(map[string]int)
	err := each(ctx, from, query, args, func(rows *sql.Rows) error {
		var sku string
		var quantity int
		err := rows.Scan(&sku, &quantity)
		stock[sku] = quantity
		return err
	})
	return stock, err
}

func each(ctx context.Context, from querier, query string, args []any, read func(rows *sql.Rows) error) error {
	rows, err := from.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// repeated returns a list of n placeholders.
func repeated(place string, n int) string { return strings.Repeat(place+", ", n-1) + place }
