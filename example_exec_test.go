package txlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock"
)

// Selling one piece in one round trip. Rows says that there must be one left: else nothing is
// committed, the sale neither.
func ExampleMutex_Exec() {
	ctx := context.Background()
	locks := open(ctx)
	defer locks.Close()
	err := locks.Mutex("example").Do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `DROP TABLE IF EXISTS example_shelf, example_sales;
			CREATE TABLE example_shelf (sku int PRIMARY KEY, stock int NOT NULL);
			CREATE TABLE example_sales (id serial PRIMARY KEY, sku int NOT NULL, buyer text NOT NULL);
			INSERT INTO example_shelf VALUES (42, 1)`)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}

	for _, buyer := range []string{"Ada", "Bob"} {
		_, err := locks.Mutex("sku:42").Exec(ctx,
			txlock.Statement{
				SQL:  "UPDATE example_shelf SET stock = stock - 1 WHERE sku = $1 AND stock > 0",
				Args: []any{42}, Rows: 1,
			},
			txlock.Statement{SQL: "INSERT INTO example_sales (sku, buyer) VALUES ($1, $2)", Args: []any{42, buyer}},
		)
		switch {
		case errors.Is(err, txlock.ErrRows):
			fmt.Println("sold out for", buyer)
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Println("sold to", buyer)
		}
	}
	// Output:
	// sold to Ada
	// sold out for Bob
}
