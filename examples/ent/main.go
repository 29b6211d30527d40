// Command ent sells goods under locks of txlock, with ent. Goods that many buy at once are never
// sold twice.
//
//	go run . "user:password@tcp(localhost:3306)/shop"
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	_ "github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/examples/ent/ent"
	"github.com/txlock/txlock/examples/ent/ent/good"
)

var errSoldOut = errors.New("sold out")

// Shop sells.
type Shop struct {
	orm   *ent.Client
	locks *txlock.Locker[*sql.Tx]
}

// Open shares one pool between ent and txlock.
func Open(ctx context.Context, db *sql.DB) (*Shop, error) {
	orm := ent.NewClient(ent.Driver(entsql.OpenDB(dialect.MySQL, db)))
	s := &Shop{orm: orm, locks: txlock.New(mysql.New(db))}
	return s, errors.Join(orm.Schema.Create(ctx), s.locks.Install(ctx))
}

// Sell has ent work in the transaction of the lock. It commits only if the lock was held all the
// time.
func (s *Shop) Sell(ctx context.Context, sku string) error {
	return s.locks.Mutex(sku).Do(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return sell(ctx, within(tx), sku)
	})
}

// within is ent in the transaction of a Do.
func within(tx *sql.Tx) *ent.Client {
	return ent.NewClient(ent.Driver(joined{entsql.NewDriver(dialect.MySQL, entsql.Conn{ExecQuerier: tx})}))
}

// joined is a driver of ent that has a transaction for its pool. ent begins one around each update:
// here that is the one that there is. Its end does nothing, so return the error of an update: that
// undoes it.
type joined struct{ dialect.Driver }

// Tx implements dialect.Driver.
func (j joined) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(j), nil }

// SellInTransaction takes the lock in a transaction of ent's, which releases it when it ends. The
// lock comes first: what was read before it may be old.
func (s *Shop) SellInTransaction(ctx context.Context, sku string) error {
	tx, err := s.orm.Tx(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback() // an error behind the Commit
	below, ok := tx.SQL()
	if !ok {
		return errors.New("no *sql.Tx")
	}
	if err := s.locks.Mutex(sku).LockTx(ctx, below); err != nil {
		return err
	}
	if err := sell(ctx, tx.Client(), sku); err != nil {
		return err
	}
	return tx.Commit()
}

// sell reads and then writes, which is safe under the lock alone.
func sell(ctx context.Context, orm *ent.Client, sku string) error {
	found, err := orm.Good.Get(ctx, sku)
	if err != nil {
		return err
	}
	if found.Left == 0 {
		return errSoldOut
	}
	return found.Update().SetLeft(found.Left - 1).Exec(ctx)
}

func run(ctx context.Context, dsn string) (sold int, err error) {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	db.SetMaxOpenConns(4) // buyers who wait have them all: no second one for who has the lock
	s, err := Open(ctx, db)
	if err != nil {
		return 0, err
	}
	defer s.locks.Close()
	if _, err := s.orm.Good.Delete().Where(good.ID("book")).Exec(ctx); err != nil {
		return 0, err
	}
	if err := s.orm.Good.Create().SetID("book").SetLeft(20).Exec(ctx); err != nil {
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
		fmt.Fprintln(os.Stderr, "usage: ent DSN")
		os.Exit(2)
	}
	sold, err := run(context.Background(), os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("40 buyers, 20 books,", sold, "sold")
}
