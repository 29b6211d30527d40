// Package shop is a shop on a database: real orders, tables of inventory, bookings and decisions,
// the work on one order, and an audit of the tables. The caller chooses the lock that protects the
// work.
package shop

import (
	"context"
	"maps"
	"slices"
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

	// look reads which of the orders are decided, and the stock of their articles.
	look(ctx context.Context, tx Tx, orders []Order) (decided map[string]bool, stock map[string]int, err error)
	book(ctx context.Context, tx Tx, o Order) error
	refuse(ctx context.Context, tx Tx, o Order) error
	// settle books and refuses many orders at once. Sold is what those that are booked take from
	// the stock.
	settle(ctx context.Context, tx Tx, booked []Order, sold []Line, decisions []Decision) error
}

// Decide is the work on an order. It books the order if all of it is in stock, and refuses it
// otherwise. It reads first and writes afterwards, so it goes wrong when another does the same in
// between.
func Decide[Tx any](ctx context.Context, l Ledger[Tx], tx Tx, o Order) (Outcome, error) {
	decided, stock, err := l.look(ctx, tx, []Order{o})
	switch {
	case err != nil:
		return "", err
	case decided[o.ID]:
		return Known, nil
	case o.fits(stock):
		return Booked, l.book(ctx, tx, o)
	}
	return Refused, l.refuse(ctx, tx, o)
}

// DecideAll is the work on many orders at once, one after the other in memory, and in as many
// statements as for one.
func DecideAll[Tx any](ctx context.Context, l Ledger[Tx], tx Tx, orders []Order) ([]Outcome, error) {
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
	return outcomes, l.settle(ctx, tx, booked, linesOf(sold), decisions)
}

// linesOf is quantities in the order of their articles.
func linesOf(quantities map[string]int) []Line {
	lines := make([]Line, 0, len(quantities))
	for _, sku := range slices.Sorted(maps.Keys(quantities)) {
		lines = append(lines, Line{sku, quantities[sku]})
	}
	return lines
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
