package txlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock"
)

// The next jobs of a queue. Any number of workers may call it at a time: each gets others.
func ExampleAny() {
	ctx := context.Background()
	locks := open(ctx)
	defer locks.Close()
	err := locks.Mutex("example").Do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `DROP TABLE IF EXISTS example_jobs;
			CREATE TABLE example_jobs (id bigint PRIMARY KEY, queue text NOT NULL, done bool NOT NULL DEFAULT false);
			CREATE INDEX ON example_jobs (queue, id) WHERE NOT done;
			INSERT INTO example_jobs VALUES (1, 'mail'), (2, 'mail'), (3, 'print'), (4, 'mail')`)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}

	mails := txlock.Any[int64](locks, "example_jobs", "id", "NOT done AND queue = $1 ORDER BY id", "mail").Limit(2)
	for err == nil {
		err = mails.Do(ctx, func(ctx context.Context, tx pgx.Tx, ids []int64) error {
			fmt.Println("send", ids)
			_, err := tx.Exec(ctx, "UPDATE example_jobs SET done = true WHERE id = ANY($1)", ids)
			return err
		})
	}
	fmt.Println(errors.Is(err, txlock.ErrNotAcquired))
	// Output:
	// send [1 2]
	// send [4]
	// true
}
