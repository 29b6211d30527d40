package txlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/guarantees/testbed"
	"github.com/txlock/txlock/internal/servers"
)

// dsn is the address of the PostgreSQL that the tests have started.
func dsn() string {
	for _, e := range testbed.Engines {
		if e.Kind == servers.Postgres18 {
			return e.DSN
		}
	}
	log.Fatal("no PostgreSQL")
	return ""
}

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

// store is a system outside the lock's database. It remembers the largest token that it has seen,
// and refuses older ones.
type store struct {
	mu    sync.Mutex
	token int64
	value string
}

var errFenced = errors.New("refused: a later holder has been here")

func (s *store) write(token int64, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.token {
		return errFenced
	}
	s.token, s.value = token, value
	return nil
}

// A lock cannot stop a holder that was paused, does not know that its lock is lost, and continues
// to write to another system. That system can, if each write carries the token of its lock.
func ExampleLock_Token() {
	ctx := context.Background()
	locks := open(ctx, txlock.WithFencing())
	defer locks.Close()
	var s store

	old, err := locks.Mutex("file").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_ = old.Unlock(ctx) // or its process was stopped for longer than its lease
	lock, err := locks.Mutex("file").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Unlock(ctx)
	fmt.Println(s.write(lock.Token(), "new"))
	fmt.Println(s.write(old.Token(), "late"))
	// Output:
	// <nil>
	// refused: a later holder has been here
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

// One of several replicas leads. What it writes to another system carries its term, so that a
// former leader that was stopped, and goes on, does no harm there.
func ExampleElection_Lead() {
	ctx := context.Background()
	locks := open(ctx)
	defer locks.Close()
	var s store
	var former int64

	election := locks.Election("scheduler", "replica-7")
	lead := func(work func(ctx context.Context, term int64) error) {
		if err := election.Lead(ctx, work); err != nil {
			log.Fatal(err)
		}
	}
	lead(func(ctx context.Context, term int64) error {
		leader, err := election.Leader(ctx)
		fmt.Println(leader.Identity, leader.Term == term, err)
		former = term
		return s.write(term, "first")
	})
	lead(func(ctx context.Context, term int64) error {
		if err := s.write(term, "second"); err != nil {
			return err
		}
		fmt.Println(s.write(former, "late"))
		return nil
	})
	_, err := election.Leader(ctx)
	fmt.Println(errors.Is(err, txlock.ErrNoLeader))
	// Output:
	// replica-7 true <nil>
	// refused: a later holder has been here
	// true
}

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
