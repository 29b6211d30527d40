package txlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock"
)

// Fair waiting. The first to come is served first. Whoever gives up leaves the queue.
func ExampleMutex_Lock() {
	ctx := context.Background()
	locks := open(ctx)
	defer locks.Close()
	mutex := locks.Mutex("printer")

	var printing sync.WaitGroup
	for range 3 {
		printing.Go(func() {
			lock, err := mutex.Within(10 * time.Second).Lock(ctx)
			if err != nil {
				log.Fatal(err) // ErrNotAcquired after ten seconds
			}
			fmt.Println("printing")
			if err := lock.Unlock(ctx); err != nil {
				log.Fatal(err)
			}
		})
	}
	printing.Wait()
	// Output:
	// printing
	// printing
	// printing
}

// A try does not wait.
func ExampleMutex_TryLock() {
	ctx := context.Background()
	locks := open(ctx)
	defer locks.Close()

	lock, err := locks.Mutex("nightly job").TryLock(ctx)
	if errors.Is(err, txlock.ErrNotAcquired) {
		fmt.Println("another replica is at it")
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Unlock(ctx)
	fmt.Println("this replica does it")
	// Output: this replica does it
}

// Many readers at the same time, and a writer alone. Who writes the price list waits until those
// who read it are done, and who comes then waits for the writer.
func ExampleMutex_Shared() {
	ctx := context.Background()
	locks := open(ctx)
	defer locks.Close()
	prices := locks.Mutex("prices")

	first, err := prices.Shared().Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	second, err := prices.Shared().Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = prices.TryLock(ctx)
	fmt.Println("a writer beside two readers:", errors.Is(err, txlock.ErrNotAcquired))
	_, err = prices.Lock(first.Context())
	fmt.Println("a reader that wants to write:", errors.Is(err, txlock.ErrUpgrade))
	fmt.Println(first.Unlock(ctx), second.Unlock(ctx))
	fmt.Println(prices.TryDo(ctx, func(context.Context, pgx.Tx) error { return nil }))
	// Output:
	// a writer beside two readers: true
	// a reader that wants to write: true
	// <nil> <nil>
	// <nil>
}

// At most three programs use an interface at once, on all machines together. The number of the
// permit tells them apart.
func ExampleLocker_Semaphore() {
	ctx := context.Background()
	locks := open(ctx)
	defer locks.Close()

	users := locks.Semaphore("payment interface", 3)
	for range 3 {
		permit, err := users.Lock(ctx)
		if err != nil {
			log.Fatal(err)
		}
		defer permit.Unlock(ctx)
		fmt.Println("account", permit.Permit())
	}
	_, err := users.Within(10 * time.Millisecond).Lock(ctx)
	fmt.Println(errors.Is(err, txlock.ErrNotAcquired))
	// Output:
	// account 0
	// account 1
	// account 2
	// true
}

// Who holds it? Break ends the session of a holder that will not come back, and the database undoes
// its work.
func ExampleLocker_Break() {
	ctx := context.Background()
	locks := open(ctx)
	defer locks.Close()
	stuck, err := locks.Mutex("import").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	holdings, err := locks.Inspect(ctx, "import")
	if err != nil {
		log.Fatal(err)
	}
	for _, holding := range holdings {
		fmt.Printf("%s: %d waiting\n", holding.Key, len(holding.Waiters))
		if err := locks.Break(ctx, holding); err != nil {
			log.Fatal(err)
		}
	}
	<-stuck.Context().Done() // the holder is told
	fmt.Println(errors.Is(context.Cause(stuck.Context()), txlock.ErrLost))
	fmt.Println(errors.Is(stuck.Unlock(ctx), txlock.ErrLost))
	// Output:
	// import: 0 waiting
	// true
	// true
}
