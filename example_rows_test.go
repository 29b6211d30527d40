package txlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
)

// Guarding an inventory decrement. The rows themselves are locked, everywhere in the same order, so
// orders with common articles wait for each other and never deadlock.
func ExampleLocker_Rows() {
	ctx := context.Background()
	locks := open(ctx)
	defer locks.Close()
	errSoldOut := errors.New("sold out")

	order := func(quantity int, skus ...any) error {
		return locks.Rows("example_inventory", "sku", skus...).Do(ctx, func(ctx context.Context, tx pgx.Tx) error {
			var short int
			err := tx.QueryRow(ctx, "SELECT count(*) FROM example_inventory WHERE sku = ANY($1::int[]) AND stock < $2",
				skus, quantity).Scan(&short)
			if err != nil {
				return err
			}
			if short > 0 {
				return errSoldOut // rolls the transaction back
			}
			_, err = tx.Exec(ctx, "UPDATE example_inventory SET stock = stock - $2 WHERE sku = ANY($1::int[])", skus,
				quantity)
			return err
		})
	}

	err := locks.Mutex("example").Do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `DROP TABLE IF EXISTS example_inventory;
			CREATE TABLE example_inventory (sku int PRIMARY KEY, stock int NOT NULL);
			INSERT INTO example_inventory VALUES (42, 5), (43, 3)`)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(order(2, 42, 43))
	fmt.Println(order(2, 43, 42))
	fmt.Println(order(3, 42))
	// Output:
	// <nil>
	// sold out
	// <nil>
}
