package txlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock"
)

// A message that is delivered twice is handled once: the marker is committed with the work.
func ExampleOnce_Do() {
	ctx := context.Background()
	locks := open(ctx)
	defer locks.Close()
	once := locks.Once("message:4711")
	if err := once.Forget(ctx); err != nil { // of an earlier run of this example
		log.Fatal(err)
	}
	handle := func(ctx context.Context, tx pgx.Tx) error {
		var balance int
		err := tx.QueryRow(ctx, "SELECT 40 + 2").Scan(&balance)
		fmt.Println("handled:", balance)
		return err
	}
	for range 2 {
		ran, err := once.Do(ctx, handle)
		fmt.Println(ran, err)
	}
	// Output:
	// handled: 42
	// true <nil>
	// false <nil>
}

// A charge that is asked for twice is made once, and both who ask get its number.
func ExampleOnceValue() {
	ctx := context.Background()
	locks := open(ctx)
	defer locks.Close()
	once := locks.Once("charge:4711")
	if err := once.Forget(ctx); err != nil { // of an earlier run of this example
		log.Fatal(err)
	}
	charge := func(ctx context.Context, tx pgx.Tx) (number int, err error) {
		err = tx.QueryRow(ctx, "SELECT 40 + 2").Scan(&number)
		return number, err
	}
	for _, amount := range []string{"5 €", "5 €", "6 €"} {
		number, ran, err := txlock.OnceValue(ctx, once, []byte(amount), charge)
		fmt.Println(number, ran, errors.Is(err, txlock.ErrOtherPayload))
	}
	// Output:
	// 42 true false
	// 42 false false
	// 0 false true
}

// In a transaction of your own. A webhook that comes twice is stored once.
func ExampleOnce_DoTx() {
	ctx := context.Background()
	locks := open(ctx)
	defer locks.Close()
	once := locks.Once("webhook:9001")
	if err := once.Forget(ctx); err != nil { // of an earlier run of this example
		log.Fatal(err)
	}
	for range 2 {
		tx := begin(ctx)
		first, err := once.DoTx(ctx, tx)
		if err != nil {
			log.Fatal(err)
		}
		if first {
			_, err = tx.Exec(ctx, "SELECT 'store it'")
		}
		fmt.Println(first, errors.Join(err, tx.Commit(ctx), tx.Conn().Close(ctx)))
	}
	// Output:
	// true <nil>
	// false <nil>
}

// A job of each day, on every replica: one of them does it, whatever their clocks say.
func ExampleOnce_Per() {
	ctx := context.Background()
	locks := open(ctx)
	defer locks.Close()
	daily := locks.Once("report").Per(24 * time.Hour)
	_, err := daily.Do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT 'the report of today'")
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	_, done, err := daily.Done(ctx)
	fmt.Println(done, err)
	// Output: true <nil>
}
