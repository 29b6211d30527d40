package main

import (
	"context"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/shop"
)

// way is how the work on an order is protected from the work on others.
type way string

const (
	unlocked  way = "no lock"
	withRows  way = "Do over Rows"
	withMutex way = "Do over Mutex"
	combining way = "Combine" // over the rows of each batch
)

// slots is the name of the demo's lock table.
const slots = "shop_slots"

// desk is where orders are placed.
type desk[Tx any] struct {
	locks    *txlock.Locker[Tx]
	ledger   shop.Ledger[Tx]
	combined *txlock.Combined[Tx, shop.Order, shop.Outcome]
	close    func() error // closes what else was opened
}

func newDesk[Tx any](locks *txlock.Locker[Tx], ledger shop.Ledger[Tx], closeOthers func() error) desk[Tx] {
	d := desk[Tx]{locks: locks, ledger: ledger, close: closeOthers}
	d.combined = txlock.Combine(d.rows, d.decide)
	return d
}

// rows are the articles of orders.
func (d desk[Tx]) rows(orders []shop.Order) *txlock.Mutex[Tx] {
	skus := shop.SKUs(orders)
	values := make([]any, len(skus))
	for i, sku := range skus {
		values[i] = sku
	}
	return d.locks.Rows(shop.Inventory, shop.InventoryColumn, values...)
}

// decide is the work on a batch of orders.
func (d desk[Tx]) decide(ctx context.Context, tx Tx, orders []shop.Order) ([]txlock.Result[shop.Outcome], error) {
	outcomes, err := shop.DecideAll(ctx, d.ledger, tx, orders)
	results := make([]txlock.Result[shop.Outcome], len(outcomes))
	for i, outcome := range outcomes {
		results[i].Value = outcome
	}
	return results, err
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
		err = d.rows([]shop.Order{o}).Do(ctx, work)
	case withMutex:
		err = d.locks.Mutex(keys(o)...).Do(ctx, work)
	case combining:
		result, err = d.combined.Do(ctx, o)
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
