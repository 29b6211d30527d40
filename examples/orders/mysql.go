package main

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	driver "github.com/go-sql-driver/mysql"
	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/mysql"
)

// mysqlShop is a shop on MySQL or MariaDB.
type mysqlShop struct {
	desk[*sql.Tx]
	db *sql.DB // for what needs no lock
}

func connectMySQL(ctx context.Context, dsn string) (shop, error) {
	config, err := driver.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	config.InterpolateParams = true // a statement is then one round trip, not three
	db, err := sql.Open("mysql", config.FormatDSN())
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(workers)
	opened, err := mysql.Open(ctx, config.FormatDSN())
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	locks := txlock.New(opened, txlock.WithTable("demo_slots"))
	return &mysqlShop{desk[*sql.Tx]{locks, mysqlLedger{db}}, db}, nil
}

func (s *mysqlShop) Close() error { return errors.Join(s.db.Close(), s.locks.Close()) }

// No table has a constraint that would refuse an error: the audit is to find it.
var mysqlTables = []string{
	dropTables,
	"CREATE TABLE demo_inventory (sku VARCHAR(20) PRIMARY KEY, stock INT NOT NULL)",
	"CREATE TABLE demo_bookings (order_id VARCHAR(20) NOT NULL, sku VARCHAR(20) NOT NULL, quantity INT NOT NULL)",
	"CREATE TABLE demo_decisions (order_id VARCHAR(20) NOT NULL, decision VARCHAR(20) NOT NULL, INDEX (order_id))",
}

func (s *mysqlShop) open(ctx context.Context, stock map[string]int) error {
	if err := s.locks.Install(ctx); err != nil {
		return err
	}
	for _, statement := range mysqlTables {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	var args []any
	for sku, quantity := range stock {
		args = append(args, sku, quantity)
	}
	_, err := s.db.ExecContext(ctx, "INSERT INTO demo_inventory (sku, stock) VALUES "+repeated("(?, ?)", len(stock)), args...)
	return err
}

func (s *mysqlShop) dropTables(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, dropTables+", demo_slots")
	return err
}

func (s *mysqlShop) books(ctx context.Context) (b books, err error) {
	if b.stock, err = readStock(ctx, s.db, "SELECT sku, stock FROM demo_inventory"); err != nil {
		return b, err
	}
	bookings := "SELECT order_id, sku, quantity FROM demo_bookings"
	err = each(ctx, s.db, bookings, nil, func(rows *sql.Rows) error {
		var one booking
		err := rows.Scan(&one.Order, &one.SKU, &one.Quantity)
		b.bookings = append(b.bookings, one)
		return err
	})
	if err != nil {
		return b, err
	}
	err = each(ctx, s.db, "SELECT order_id, decision FROM demo_decisions", nil, func(rows *sql.Rows) error {
		var one decision
		err := rows.Scan(&one.Order, &one.Outcome)
		b.decisions = append(b.decisions, one)
		return err
	})
	return b, err
}

type mysqlLedger struct{ db *sql.DB }

func (l mysqlLedger) look(ctx context.Context, tx *sql.Tx, o order) (decided bool, stock map[string]int, err error) {
	query := "SELECT EXISTS (SELECT 1 FROM demo_decisions WHERE order_id = ?)"
	if err := tx.QueryRowContext(ctx, query, o.id).Scan(&decided); err != nil {
		return false, nil, err
	}
	query = "SELECT sku, stock FROM demo_inventory WHERE sku IN (" + repeated("?", len(o.lines)) + ")"
	stock, err = readStock(ctx, tx, query, values(o.skus())...)
	return decided, stock, err
}

func (l mysqlLedger) book(ctx context.Context, tx *sql.Tx, o order) error {
	var quantities, lines []any
	for _, line := range o.lines {
		quantities = append(quantities, line.sku, line.quantity)
		lines = append(lines, o.id, line.sku, line.quantity)
	}
	update := "UPDATE demo_inventory SET stock = stock - CASE sku" + strings.Repeat(" WHEN ? THEN ?", len(o.lines)) + " END" +
		" WHERE sku IN (" + repeated("?", len(o.lines)) + ")"
	if _, err := tx.ExecContext(ctx, update, append(quantities, values(o.skus())...)...); err != nil {
		return err
	}
	insert := "INSERT INTO demo_bookings (order_id, sku, quantity) VALUES " + repeated("(?, ?, ?)", len(o.lines))
	if _, err := tx.ExecContext(ctx, insert, lines...); err != nil {
		return err
	}
	return l.record(ctx, tx, o, booked)
}

func (l mysqlLedger) refuse(ctx context.Context, tx *sql.Tx, o order) error {
	return l.record(ctx, tx, o, refused)
}

func (l mysqlLedger) record(ctx context.Context, tx *sql.Tx, o order, result outcome) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO demo_decisions (order_id, decision) VALUES (?, ?)", o.id, string(result))
	return err
}

func (l mysqlLedger) transact(ctx context.Context, work func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := l.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	if err := work(ctx, tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (l mysqlLedger) deadlocked(err error) bool {
	const deadlockFound = 1213
	var answer *driver.MySQLError
	return errors.As(err, &answer) && answer.Number == deadlockFound
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

// repeated is a list of n places for values.
func repeated(place string, n int) string { return strings.Repeat(place+", ", n-1) + place }
