package orm

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
)

// Bun sells with bun.
type Bun struct {
	*txlock.Locker[*sql.Tx]
	orm *bun.DB
}

// NewBun shares one pool between bun and txlock.
func NewBun(db *sql.DB) *Bun {
	return &Bun{txlock.New(postgres.NewSQL(db)), bun.NewDB(db, pgdialect.New())}
}

// Sell sells in the transaction of a Do.
func (b *Bun) Sell(ctx context.Context, sku string) error {
	return b.Mutex(sku).Do(ctx, func(ctx context.Context, tx *sql.Tx) error { return b.sell(ctx, tx, sku) })
}

// SellInTransaction sells in a transaction of bun's.
func (b *Bun) SellInTransaction(ctx context.Context, sku string) error {
	return b.orm.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if err := b.Mutex(sku).LockTx(ctx, tx.Tx); err != nil {
			return err
		}
		return b.sell(ctx, tx.Tx, sku)
	})
}

// sell reads and then writes, which is safe under the lock alone.
func (b *Bun) sell(ctx context.Context, tx *sql.Tx, sku string) error {
	good := Good{SKU: sku}
	if err := b.orm.NewSelect().Conn(tx).Model(&good).WherePK().Scan(ctx); err != nil {
		return err
	}
	if good.Stock == 0 {
		return ErrSoldOut
	}
	good.Stock--
	_, err := b.orm.NewUpdate().Conn(tx).Model(&good).WherePK().Exec(ctx)
	return err
}
