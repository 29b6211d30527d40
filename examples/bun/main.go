// Command bun sells goods under locks of txlock, with bun. Goods that many buy at once are never
// sold twice.
//
//	go run . "postgres://localhost/shop"
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	_ "github.com/lib/pq"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
)

// Good is what is on stock.
type Good struct {
	SKU  string `bun:",pk"`
	Left int
}

var errSoldOut = errors.New("sold out")

// Shop sells.
type Shop struct {
	orm   *bun.DB
	locks *txlock.Locker[*sql.Tx]
}

// Open shares one pool between bun and txlock.
func Open(ctx context.Context, db *sql.DB) (*Shop, error) {
	s := &Shop{orm: bun.NewDB(db, pgdialect.New()), locks: txlock.New(postgres.NewSQL(db))}
	_, err := s.orm.NewCreateTable().Model((*Good)(nil)).IfNotExists().Exec(ctx)
	return s, errors.Join(err, s.locks.Install(ctx))
}

// Sell has bun work in the transaction of the lock. It commits only if the lock was held all the
// time.
func (s *Shop) Sell(ctx context.Context, sku string) error {
	return s.locks.Mutex(sku).Do(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return s.sell(ctx, tx, sku)
	})
}

// SellInTransaction takes the lock in a transaction of bun's, which releases it when it ends. The
// lock comes first: what was read before it may be old.
func (s *Shop) SellInTransaction(ctx context.Context, sku string) error {
	return s.orm.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if err := s.locks.Mutex(sku).LockTx(ctx, tx.Tx); err != nil {
			return err
		}
		return s.sell(ctx, tx.Tx, sku)
	})
}

// sell reads and then writes, which is safe under the lock alone.
func (s *Shop) sell(ctx context.Context, tx *sql.Tx, sku string) error {
	good := Good{SKU: sku}
	if err := s.orm.NewSelect().Conn(tx).Model(&good).WherePK().Scan(ctx); err != nil {
		return err
	}
	if good.Left == 0 {
		return errSoldOut
	}
	good.Left--
	_, err := s.orm.NewUpdate().Conn(tx).Model(&good).WherePK().Exec(ctx)
	return err
}

func run(ctx context.Context, dsn string) (sold int, err error) {
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	s, err := Open(ctx, db)
	if err != nil {
		return 0, err
	}
	defer s.locks.Close()
	book := Good{SKU: "book", Left: 20}
	_, err = s.orm.NewInsert().Model(&book).On(`CONFLICT (sku) DO UPDATE`).Set(`"left" = EXCLUDED."left"`).Exec(ctx)
	if err != nil {
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
		fmt.Fprintln(os.Stderr, "usage: bun DSN")
		os.Exit(2)
	}
	sold, err := run(context.Background(), os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("40 buyers, 20 books,", sold, "sold")
}
