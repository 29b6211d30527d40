// Command sqlc sells goods under locks of txlock, with queries that sqlc has generated for pgx.
// Goods that many buy at once are never sold twice.
//
//	go run . "postgres://localhost/shop"
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/examples/sqlc/store"
)

//go:generate env CGO_ENABLED=0 go run github.com/sqlc-dev/sqlc/cmd/sqlc@v1.31.1 generate

//go:embed schema.sql
var schema string

var errSoldOut = errors.New("sold out")

// Shop sells.
type Shop struct {
	pool  *pgxpool.Pool
	goods *store.Queries
	locks *txlock.Locker[pgx.Tx]
}

// Open shares one pool between the queries and txlock.
func Open(ctx context.Context, pool *pgxpool.Pool) (*Shop, error) {
	s := &Shop{pool: pool, goods: store.New(pool), locks: txlock.New(postgres.New(pool))}
	_, err := pool.Exec(ctx, schema)
	return s, errors.Join(err, s.locks.Install(ctx))
}

// Sell has the queries run in the transaction of the lock. It commits only if the lock was held all
// the time.
func (s *Shop) Sell(ctx context.Context, sku string) error {
	return s.locks.Mutex(sku).Do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return sell(ctx, s.goods.WithTx(tx), sku)
	})
}

// SellInTransaction takes the lock in a transaction of its own, which releases it when it ends. The
// lock comes first: what was read before it may be old.
func (s *Shop) SellInTransaction(ctx context.Context, sku string) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if err := s.locks.Mutex(sku).LockTx(ctx, tx); err != nil {
			return err
		}
		return sell(ctx, s.goods.WithTx(tx), sku)
	})
}

// sell reads and then writes, which is safe under the lock alone.
func sell(ctx context.Context, goods *store.Queries, sku string) error {
	good, err := goods.Good(ctx, sku)
	if err != nil {
		return err
	}
	if good.Left == 0 {
		return errSoldOut
	}
	return goods.SetLeft(ctx, store.SetLeftParams{Sku: sku, Left: good.Left - 1})
}

func run(ctx context.Context, dsn string) (sold int, err error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	s, err := Open(ctx, pool)
	if err != nil {
		return 0, err
	}
	defer s.locks.Close()
	if err := s.goods.Put(ctx, store.PutParams{Sku: "book", Left: 20}); err != nil {
		return 0, err
	}
	var buyers errgroup.Group
	receipts := make(chan struct{}, 40)
	for i := range 40 {
		buyers.Go(func() error {
			buy := s.Sell
			if i%2 == 0 {
				buy = s.SellInTransaction
			}
			err := buy(ctx, "book")
			if err == nil {
				receipts <- struct{}{}
			}
			if errors.Is(err, errSoldOut) {
				return nil
			}
			return err
		})
	}
	err = buyers.Wait()
	return len(receipts), err
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sqlc DSN")
		os.Exit(2)
	}
	sold, err := run(context.Background(), os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("40 buyers, 20 books,", sold, "sold")
}
