package main

import (
	"context"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/shop"
)

// way is how the work on an order is protected from the work on others.
type way string

const (
	unlocked  way = "no lock"
	withRows  way = "Do over Rows"
	withMutex way = "Do over Mutex"
)

// slots is the name of the demo's lock table.
const slots = "shop_slots"

// desk is where orders are placed.
type desk[Tx any] struct {
	locks  *txlock.Locker[Tx]
	ledger shop.Ledger[Tx]
	close  func() error // closes what else was opened
}

// place decides on an order. It also returns how often the database rolled this order back to break
// a deadlock.
func (d desk[Tx]) place(ctx context.Context, w way, o shop.Order) (result shop.Outcome, deadlocks int, err error) {
	work := func(ctx context.Context, tx Tx) (err error) {
		result, err = shop.Decide(ctx, d.ledger, tx, o)
		return err
	}
	switch w {
	case withRows:
		// A second submission of the order has the same articles, so the locks on their rows also
		// exclude it.
		err = d.locks.Rows(shop.Inventory, shop.InventoryColumn, values(o.SKUs())...).Do(ctx, work)
	case withMutex:
		err = d.locks.Mutex(keys(o)...).Do(ctx, work)
	case unlocked:
		err = d.ledger.Transact(ctx, work)
		for d.ledger.Deadlocked(err) {
			deadlocks++
			err = d.ledger.Transact(ctx, work)
		}
	}
	return result, deadlocks, err
}

func keys(o shop.Order) []string {
	keys := []string{"order:" + o.ID}
	for _, sku := range o.SKUs() {
		keys = append(keys, "sku:"+sku)
	}
	return keys
}

func values(skus []string) []any {
	values := make([]any, len(skus))
	for i, sku := range skus {
		values[i] = sku
	}
	return values
}
