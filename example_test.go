package txlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// dsn is the address of the PostgreSQL that the tests have started.
func dsn() string { return testbed.NewestPostgres().DSN }

// open returns a Locker whose tables are installed.
func open(ctx context.Context, options ...txlock.Option) *txlock.Locker[pgx.Tx] {
	driver, err := postgres.Open(ctx, dsn())
	if err != nil {
		log.Fatal(err)
	}
	locks := txlock.New(driver, options...)
	if err := locks.Install(ctx); err != nil {
		log.Fatal(err)
	}
	return locks
}

// begin begins a transaction, on a connection of its own.
func begin(ctx context.Context) pgx.Tx {
	conn, err := pgx.Connect(ctx, dsn())
	if err != nil {
		log.Fatal(err)
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		log.Fatal(err)
	}
	return tx
}

// A critical section inside a database transaction. Its writes are committed if and only if the
// lock was held throughout.
func Example() {
	ctx := context.Background()
	driver, err := postgres.Open(ctx, dsn()) // or postgres.New(pool), mysql.New(db)
	if err != nil {
		log.Fatal(err)
	}
	locks := txlock.New(driver)
	defer locks.Close()
	if err := locks.Install(ctx); err != nil {
		log.Fatal(err)
	}

	err = locks.Mutex("report:2026-11").Do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var month string
		if err := tx.QueryRow(ctx, "SELECT to_char(date '2026-11-21', 'Month')").Scan(&month); err != nil {
			return err
		}
		fmt.Println("nobody else writes the report of", month)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: nobody else writes the report of November
}

// Work under the lock, if nobody else is at it.
func ExampleMutex_TryDo() {
	ctx := context.Background()
	locks := open(ctx)
	defer locks.Close()
	refresh := locks.Mutex("refresh view")

	work := func(ctx context.Context, _ pgx.Tx) error {
		other := refresh.TryDo(txlock.Apart(ctx), func(context.Context, pgx.Tx) error { return nil })
		fmt.Println("another caller meanwhile:", errors.Is(other, txlock.ErrNotAcquired))
		return nil
	}
	fmt.Println(refresh.TryDo(ctx, work))
	// Output:
	// another caller meanwhile: true
	// <nil>
}

// A lock in a transaction of your own. It is held until that ends.
func ExampleMutex_LockTx() {
	ctx := context.Background()
	locks := open(ctx)
	defer locks.Close()
	account := locks.Mutex("account:7")

	tx, other := begin(ctx), begin(ctx)
	defer tx.Conn().Close(ctx)
	defer other.Conn().Close(ctx)
	if err := account.LockTx(ctx, tx); err != nil {
		log.Fatal(err)
	}
	err := account.TryLockTx(ctx, other)
	fmt.Println("held by another transaction:", errors.Is(err, txlock.ErrNotAcquired))
	if err := tx.Commit(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(account.TryLockTx(ctx, other))
	// Output:
	// held by another transaction: true
	// <nil>
}

// Work inside the lock joins it by its context. Apart gives up that ownership, for work that goes
// on by itself.
func ExampleApart() {
	ctx := context.Background()
	locks := open(ctx)
	defer locks.Close()
	mutex := locks.Mutex("document")

	err := mutex.Do(ctx, func(ctx context.Context, _ pgx.Tx) error {
		joined, err := mutex.TryLock(ctx)
		if err != nil {
			return err
		}
		defer joined.Unlock(ctx)
		_, err = mutex.TryLock(txlock.Apart(ctx))
		fmt.Println("somebody else:", errors.Is(err, txlock.ErrNotAcquired))
		return nil
	})
	fmt.Println(err)
	// Output:
	// somebody else: true
	// <nil>
}
