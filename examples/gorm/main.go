// Command gorm sells goods under locks of txlock, with gorm. Goods that many buy at once are never
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

	_ "github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sync/errgroup"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/txlock/txlock"
	dialect "github.com/txlock/txlock/dialects/postgres"
)

// Good is what is on stock.
type Good struct {
	SKU  string `gorm:"primaryKey"`
	Left int
}

var errSoldOut = errors.New("sold out")

// Shop sells.
type Shop struct {
	orm   *gorm.DB
	locks *txlock.Locker[*sql.Tx]
}

// Open shares one pool between gorm and txlock.
func Open(ctx context.Context, db *sql.DB) (*Shop, error) {
	orm, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{})
	if err != nil {
		return nil, err
	}
	s := &Shop{orm: orm, locks: txlock.New(dialect.NewSQL(db))}
	return s, errors.Join(orm.WithContext(ctx).AutoMigrate(&Good{}), s.locks.Install(ctx))
}

// Sell has gorm work in the transaction of the lock. It commits only if the lock was held all the
// time.
func (s *Shop) Sell(ctx context.Context, sku string) error {
	return s.locks.Mutex(sku).Do(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return sell(s.within(ctx, tx), sku)
	})
}

// within is gorm in the transaction of a Do.
func (s *Shop) within(ctx context.Context, tx *sql.Tx) *gorm.DB {
	orm := s.orm.Session(&gorm.Session{Context: ctx})
	orm.Statement.ConnPool = tx
	return orm
}

// SellInTransaction takes the lock in a transaction of gorm's, which releases it when it ends. The
// lock comes first: what was read before it may be old.
func (s *Shop) SellInTransaction(ctx context.Context, sku string) error {
	return s.orm.WithContext(ctx).Transaction(func(orm *gorm.DB) error {
		tx, ok := orm.Statement.ConnPool.(*sql.Tx) // with PrepareStmt a *gorm.PreparedStmtTX around it
		if !ok {
			return fmt.Errorf("no *sql.Tx but %T", orm.Statement.ConnPool)
		}
		if err := s.locks.Mutex(sku).LockTx(ctx, tx); err != nil {
			return err
		}
		return sell(orm, sku)
	})
}

// sell reads and then writes, which is safe under the lock alone.
func sell(orm *gorm.DB, sku string) error {
	var good Good
	if err := orm.Take(&good, "sku = ?", sku).Error; err != nil {
		return err
	}
	if good.Left == 0 {
		return errSoldOut
	}
	return orm.Model(&good).Update("left", good.Left-1).Error
}

func run(ctx context.Context, dsn string) (sold int, err error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	s, err := Open(ctx, db)
	if err != nil {
		return 0, err
	}
	defer s.locks.Close()
	if err := s.orm.Save(&Good{SKU: "book", Left: 20}).Error; err != nil {
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
		fmt.Fprintln(os.Stderr, "usage: gorm DSN")
		os.Exit(2)
	}
	sold, err := run(context.Background(), os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("40 buyers, 20 books,", sold, "sold")
}
