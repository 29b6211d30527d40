package main

import (
	"context"
	"strings"

	"github.com/txlock/txlock"
)

// way is what protects the work on an order from the work on others.
type way string

const (
	unlocked  way = "no lock"
	withRows  way = "Do over Rows"
	withMutex way = "Do over Mutex"
)

type outcome string

const (
	booked  outcome = "booked"
	refused outcome = "refused"
	known   outcome = "known" // decided when it was submitted before
)

// ledger is the shop's tables in one database, as seen from within a transaction.
type ledger[Tx any] interface {
	look(ctx context.Context, tx Tx, o order) (decided bool, stock map[string]int, err error)
	book(ctx context.Context, tx Tx, o order) error
	refuse(ctx context.Context, tx Tx, o order) error

	// transact runs work in a plain transaction at READ COMMITTED.
	transact(ctx context.Context, work func(ctx context.Context, tx Tx) error) error
	deadlocked(err error) bool
}

// desk is where orders are placed.
type desk[Tx any] struct {
	locks  *txlock.Locker[Tx]
	ledger ledger[Tx]
}

// place decides about an order, and returns how often the database first broke a deadlock at the cost of this order.
func (d desk[Tx]) place(ctx context.Context, w way, o order) (result outcome, deadlocks int, err error) {
	work := func(ctx context.Context, tx Tx) (err error) {
		result, err = d.decide(ctx, tx, o)
		return err
	}
	switch w {
	case withRows:
		// The same order, submitted again, has the same articles: its rows keep it out as well.
		err = d.locks.Rows("demo_inventory", "sku", values(o.skus())...).Do(ctx, work)
	case withMutex:
		err = d.locks.Mutex(keys(o)...).Do(ctx, work)
	case unlocked:
		err = d.ledger.transact(ctx, work)
		for d.ledger.deadlocked(err) {
			deadlocks++
			err = d.ledger.transact(ctx, work)
		}
	}
	return result, deadlocks, err
}

// decide is the work: the same, whatever protects it.
func (d desk[Tx]) decide(ctx context.Context, tx Tx, o order) (outcome, error) {
	decided, stock, err := d.ledger.look(ctx, tx, o)
	switch {
	case err != nil:
		return "", err
	case decided:
		return known, nil
	case o.fits(stock):
		return booked, d.ledger.book(ctx, tx, o)
	}
	return refused, d.ledger.refuse(ctx, tx, o)
}

func keys(o order) []string {
	keys := []string{"order:" + o.id}
	for _, l := range o.lines {
		keys = append(keys, "sku:"+l.sku)
	}
	return keys
}

func values[T any](from []T) []any {
	values := make([]any, len(from))
	for i, value := range from {
		values[i] = value
	}
	return values
}

// shop is a desk and its tables, whatever the database.
type shop interface {
	place(ctx context.Context, w way, o order) (result outcome, deadlocks int, err error)
	open(ctx context.Context, stock map[string]int) error
	books(ctx context.Context) (books, error)
	dropTables(ctx context.Context) error
	Close() error
}

const dropTables = "DROP TABLE IF EXISTS demo_inventory, demo_bookings, demo_decisions"

func connect(ctx context.Context, dsn string) (shop, error) {
	if strings.HasPrefix(dsn, "postgres://") {
		return connectPostgres(ctx, dsn)
	}
	return connectMySQL(ctx, dsn)
}
