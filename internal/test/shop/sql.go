package shop

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"

	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
)

// NewMySQL is a shop on MySQL or MariaDB.
func NewMySQL(db *sql.DB) Ledger[*sql.Tx] { return sqlLedger{db: db} }

// NewPostgresSQL is a shop on PostgreSQL that uses database/sql.
func NewPostgresSQL(db *sql.DB) Ledger[*sql.Tx] { return sqlLedger{db: db, numbered: true} }

// sqlLedger is a shop that uses database/sql.
type sqlLedger struct {
	db       *sql.DB
	numbered bool // placeholders are $1, $2, as in PostgreSQL
}

// No table has a constraint that would prevent an error, because the audit must find it.
var sqlTables = []string{
	dropTables,
	"CREATE TABLE shop_inventory (sku VARCHAR(20) PRIMARY KEY, stock INT NOT NULL)",
	"CREATE TABLE shop_bookings (order_id VARCHAR(20) NOT NULL, sku VARCHAR(20) NOT NULL, quantity INT NOT NULL)",
	"CREATE TABLE shop_decisions (order_id VARCHAR(20) NOT NULL, decision VARCHAR(20) NOT NULL)",
	"CREATE INDEX shop_decided ON shop_decisions (order_id)",
}

func (l sqlLedger) Open(ctx context.Context, stock map[string]int) error {
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

func (l sqlLedger) Drop(ctx context.Context, others ...string) error {
	_, err := l.db.ExecContext(ctx, dropping(others))
	return err
}

func (l sqlLedger) Books(ctx context.Context) (b Books, err error) {
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

func (l sqlLedger) look(ctx context.Context, tx *sql.Tx, orders []Order) (
	decided map[string]bool, stock map[string]int, err error,
) {
	decided = make(map[string]bool)
	query := l.text("SELECT order_id FROM shop_decisions WHERE order_id IN (" + repeated("?", len(orders)) + ")")
	err = each(ctx, tx, query, anys(ids(orders)), func(rows *sql.Rows) error {
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
	stock, err = readStock(ctx, tx, query, anys(skus)...)
	return decided, stock, err
}

func (l sqlLedger) book(ctx context.Context, tx *sql.Tx, o Order) error {
	var quantities, lines []any
	for _, line := range o.Lines {
		quantities = append(quantities, line.SKU, line.Quantity)
		lines = append(lines, o.ID, line.SKU, line.Quantity)
	}
	// PostgreSQL treats a placeholder in a CASE as text unless it is cast.
	update := "UPDATE shop_inventory SET stock = stock - CASE sku" +
		strings.Repeat(" WHEN ? THEN CAST(? AS DECIMAL)", len(o.Lines)) + " END" +
		" WHERE sku IN (" + repeated("?", len(o.Lines)) + ")"
	if _, err := tx.ExecContext(ctx, l.text(update), append(quantities, anys(o.SKUs())...)...); err != nil {
		return err
	}
	insert := "INSERT INTO shop_bookings (order_id, sku, quantity) VALUES " + repeated("(?, ?, ?)", len(o.Lines))
	if _, err := tx.ExecContext(ctx, l.text(insert), lines...); err != nil {
		return err
	}
	return l.record(ctx, tx, o, Booked)
}

func (l sqlLedger) refuse(ctx context.Context, tx *sql.Tx, o Order) error {
	return l.record(ctx, tx, o, Refused)
}

func (l sqlLedger) record(ctx context.Context, tx *sql.Tx, o Order, result Outcome) error {
	statement := l.text("INSERT INTO shop_decisions (order_id, decision) VALUES (?, ?)")
	_, err := tx.ExecContext(ctx, statement, o.ID, string(result))
	return err
}

func (l sqlLedger) settle(ctx context.Context, tx *sql.Tx, booked []Order, sold []Line, decisions []Decision) error {
	if len(booked) > 0 {
		var taken, lines []any
		for _, line := range sold {
			taken = append(taken, line.SKU, line.Quantity)
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

func (l sqlLedger) Transact(ctx context.Context, work func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := l.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	if err := work(ctx, tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (l sqlLedger) Deadlocked(err error) bool {
	const deadlockFound, deadlockDetected = 1213, "40P01"
	var ofMySQL *driver.MySQLError
	var ofPostgres *pgconn.PgError
	return errors.As(err, &ofMySQL) && ofMySQL.Number == deadlockFound ||
		errors.As(err, &ofPostgres) && ofPostgres.Code == deadlockDetected
}

// text returns a statement with the placeholders of the database.
func (l sqlLedger) text(statement string) string {
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

func anys[T any](values []T) []any {
	all := make([]any, len(values))
	for i, value := range values {
		all[i] = value
	}
	return all
}
