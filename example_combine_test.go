package txlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock"
)

// A hot row. Every order takes from the same stock, so those of many callers are done together: one
// lock, three statements and one commit for all that came while the last batch was under way.
func ExampleCombine() {
	ctx := context.Background()
	locks := open(ctx)
	defer locks.Close()
	err := locks.Mutex("example").Do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `DROP TABLE IF EXISTS example_stock, example_orders;
			CREATE TABLE example_stock (sku int PRIMARY KEY, stock int NOT NULL);
			CREATE TABLE example_orders (id int PRIMARY KEY, sku int NOT NULL);
			INSERT INTO example_stock VALUES (42, 90)`)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	errSoldOut := errors.New("sold out")

	orders := txlock.Combine(func([]int) *txlock.Mutex[pgx.Tx] {
		return locks.Rows("example_stock", "sku", 42)
	}, func(ctx context.Context, tx pgx.Tx, ids []int) ([]txlock.Result[int], error) {
		var stock int
		if err := tx.QueryRow(ctx, "SELECT stock FROM example_stock WHERE sku = 42").Scan(&stock); err != nil {
			return nil, err
		}
		booked := min(stock, len(ids)) // in the order in which they came
		_, err := tx.Exec(ctx, "INSERT INTO example_orders SELECT unnest($1::int[]), 42", ids[:booked])
		if err != nil {
			return nil, err // the batch is rolled back, and its halves are tried
		}
		_, err = tx.Exec(ctx, "UPDATE example_stock SET stock = stock - $1 WHERE sku = 42", booked)
		results := make([]txlock.Result[int], len(ids))
		for i := range ids {
			if i < booked {
				results[i].Value = stock - i - 1 // left
			} else {
				results[i].Err = errSoldOut // of this order; the others are committed
			}
		}
		return results, err
	})

	var callers sync.WaitGroup
	var booked, soldOut atomic.Int64
	for id := range 100 {
		callers.Go(func() {
			switch _, err := orders.Do(ctx, id); {
			case err == nil: // it is committed
				booked.Add(1)
			case errors.Is(err, errSoldOut):
				soldOut.Add(1)
			default:
				log.Fatal(err)
			}
		})
	}
	callers.Wait()
	fmt.Println(booked.Load(), "booked,", soldOut.Load(), "sold out")
	// Output: 90 booked, 10 sold out
}
