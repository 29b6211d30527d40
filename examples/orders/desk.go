package main

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strings"

	driver "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/shop"
)

// way is how the work on an order is protected from the work on others.
type way string

const (
	unlocked  way = "no lock"
	withRows  way = "Do over Rows"
	withMutex way = "Do over Mutex"
	combining way = "Combine" // over the shelves of each batch
)

// slots is the name of the demo's lock table.
const slots = "shop_slots"

// desk is where orders are placed.
type desk struct {
	db       *sql.DB // also of work that needs no lock
	locks    *txlock.Locker[*sql.Tx]
	ledger   shop.Ledger
	combined *txlock.Combined[*sql.Tx, shop.Order, shop.Outcome]
}

// connect connects to PostgreSQL, or to MySQL or MariaDB.
func connect(ctx context.Context, dsn string) (*desk, error) {
	var d desk
	var err error
	if strings.HasPrefix(dsn, "postgres://") {
		if d.db, err = sql.Open("pgx", dsn); err != nil {
			return nil, err
		}
		d.locks = txlock.New(postgres.NewSQL(d.db), txlock.WithTable(slots))
	} else {
		config, err := driver.ParseDSN(dsn)
		if err != nil {
			return nil, err
		}
		config.InterpolateParams = true // each statement is one round trip instead of three
		if d.db, err = sql.Open("mysql", config.FormatDSN()); err != nil {
			return nil, err
		}
		opened, err := mysql.Open(ctx, config.FormatDSN())
		if err != nil {
			return nil, errors.Join(err, d.db.Close())
		}
		d.locks = txlock.New(opened, txlock.WithTable(slots))
	}
	d.db.SetMaxOpenConns(workers)
	d.db.SetMaxIdleConns(workers)
	d.ledger = shop.New(d.db, strings.HasPrefix(dsn, "postgres://"))
	d.combined = txlock.Combine(d.shelves, d.decide)
	return &d, nil
}

func (d *desk) close() error { return errors.Join(d.locks.Close(), d.db.Close()) }

// open makes new tables with an opening stock.
func (d *desk) open(ctx context.Context, stock map[string]int) error {
	if err := d.locks.Install(ctx); err != nil {
		return err
	}
	return d.ledger.Open(ctx, stock)
}

// rows are the articles of orders.
func (d *desk) rows(orders []shop.Order) *txlock.Mutex[*sql.Tx] {
	return d.locks.Rows(shop.Inventory, shop.InventoryColumn, shop.SKUs(orders)...)
}

// shelves are those with the articles of orders. A batch has too many articles for one lock, which
// takes 256 rows or keys.
func (d *desk) shelves(orders []shop.Order) *txlock.Mutex[*sql.Tx] {
	keys := make(map[string]bool)
	for _, o := range orders {
		for _, line := range o.Lines {
			keys["shelf:"+line.SKU[:2]] = true
		}
	}
	return d.locks.Mutex(slices.Collect(maps.Keys(keys))...)
}

// decide is the work on a batch of orders.
func (d *desk) decide(ctx context.Context, tx *sql.Tx, orders []shop.Order) ([]txlock.Result[shop.Outcome], error) {
	outcomes, err := d.ledger.Decide(ctx, tx, orders...)
	results := make([]txlock.Result[shop.Outcome], len(outcomes))
	for i, outcome := range outcomes {
		results[i].Value = outcome
	}
	return results, err
}

// place decides on an order.
func (d *desk) place(ctx context.Context, w way, o shop.Order) (a answer, err error) {
	work := func(ctx context.Context, tx *sql.Tx) error {
		outcomes, err := d.ledger.Decide(ctx, tx, o)
		if err == nil {
			a.outcome = outcomes[0]
		}
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
		a.outcome, err = d.combined.Do(ctx, o)
	case unlocked:
		err = d.ledger.Transact(ctx, work)
		for d.ledger.Deadlocked(err) {
			a.deadlocks++
			err = d.ledger.Transact(ctx, work)
		}
	}
	return a, err
}

func keys(o shop.Order) []string {
	keys := []string{"order:" + o.ID}
	for _, line := range o.Lines {
		keys = append(keys, "sku:"+line.SKU)
	}
	return keys
}
