package orm

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/examples/orm/store"
)

//go:generate env CGO_ENABLED=0 go run github.com/sqlc-dev/sqlc/cmd/sqlc@v1.31.1 generate

// SQLC sells with queries that sqlc has generated for pgx.
type SQLC struct {
	*txlock.Locker[pgx.Tx]
	pool  *pgxpool.Pool
	goods *store.Queries
}

// NewSQLC shares one pool between the queries and txlock.
func NewSQLC(pool *pgxpool.Pool) *SQLC {
	return &SQLC{txlock.New(postgres.New(pool)), pool, store.New(pool)}
}

// Sell sells in the transaction of a Do.
func (s *SQLC) Sell(ctx context.Context, sku string) error {
	return s.Mutex(sku).Do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return s.sell(ctx, s.goods.WithTx(tx), sku)
	})
}

// SellInTransaction sells in a transaction of its own.
func (s *SQLC) SellInTransaction(ctx context.Context, sku string) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if err := s.Mutex(sku).LockTx(ctx, tx); err != nil {
			return err
		}
		return s.sell(ctx, s.goods.WithTx(tx), sku)
	})
}

// sell reads and then writes, which is safe under the lock alone.
func (*SQLC) sell(ctx context.Context, goods *store.Queries, sku string) error {
	stock, err := goods.Stock(ctx, sku)
	if err != nil {
		return err
	}
	if stock == 0 {
		return ErrSoldOut
	}
	return goods.SetStock(ctx, store.SetStockParams{Sku: sku, Stock: stock - 1})
}
