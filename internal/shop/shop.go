// Package shop is a shop on a database: real orders, tables of inventory, bookings and decisions,
// the work on one order, and an audit of the tables. The caller chooses the lock that protects the
// work.
package shop

import (
	"context"
	"strings"
)

// Outcome is the outcome of an order.
type Outcome string

// The outcomes.
const (
	Booked  Outcome = "booked"
	Refused Outcome = "refused"
	Known   Outcome = "known" // decided in an earlier submission
)

// Ledger is the tables of the shop in one database. Tx is the transaction type of its client
// library.
type Ledger[Tx any] interface {
	// Open creates new tables with an opening stock.
	Open(ctx context.Context, stock map[string]int) error
	// Books reads all tables.
	Books(ctx context.Context) (Books, error)
	// Drop removes the tables, and the given others.
	Drop(ctx context.Context, others ...string) error

	// Transact runs work in a plain transaction at READ COMMITTED.
	Transact(ctx context.Context, work func(ctx context.Context, tx Tx) error) error
	// Deadlocked reports whether the database broke a deadlock by this error.
	Deadlocked(err error) bool

	look(ctx context.Context, tx Tx, o Order) (decided bool, stock map[string]int, err error)
	book(ctx context.Context, tx Tx, o Order) error
	refuse(ctx context.Context, tx Tx, o Order) error
}

// Decide is the work on an order. It books the order if all of it is in stock, and refuses it
// otherwise. It reads first and writes afterwards, so it goes wrong when another does the same in
// between.
func Decide[Tx any](ctx context.Context, l Ledger[Tx], tx Tx, o Order) (Outcome, error) {
	decided, stock, err := l.look(ctx, tx, o)
	switch {
	case err != nil:
		return "", err
	case decided:
		return Known, nil
	case o.fits(stock):
		return Booked, l.book(ctx, tx, o)
	}
	return Refused, l.refuse(ctx, tx, o)
}

const dropTables = "DROP TABLE IF EXISTS shop_inventory, shop_bookings, shop_decisions"

func dropping(others []string) string {
	return strings.Join(append([]string{dropTables}, others...), ", ")
}

// The table with the stock of each article, and its unique column. They are for locks on the
// articles themselves.
const (
	Inventory       = "shop_inventory"
	InventoryColumn = "sku"
)
