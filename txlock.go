// Package txlock is mutual exclusion that lives and dies with a database transaction, on
// PostgreSQL, MySQL and MariaDB.
//
// A [Locker] names the database, a [Mutex] what to lock there:
//
//	locks := txlock.New(driver) // of postgres.Open, New, NewSQL, or mysql.Open, New
//	err := locks.Install(ctx)   // creates the lock table; idempotent
//
//	err = locks.Mutex("sku:42").Do(ctx, func(ctx context.Context, tx pgx.Tx) error {
//		_, err := tx.Exec(ctx, "UPDATE inventory SET n = n - 1 WHERE sku = 42 AND n > 0")
//		return err
//	})
//
// # What a lock is
//
// A lock is a row that a database session has locked with SELECT … FOR UPDATE in an open
// transaction. Keys of [Locker.Mutex] are hashed to slots: rows of a table that Install seeds.
// [Locker.Rows] locks rows of your own table. The database lets one session hold a row, and frees
// it when the session ends, for whatever reason. No client's clock decides.
//
// # Which call to use
//
// [Mutex.Do] does the work in the lock's own transaction. The work commits only if the lock was
// held from the first statement to the commit: prefer Do wherever the work is in this database.
// [Mutex.Exec] is that for a list of statements, [Combine] for the work of many callers at once,
// and [Mutex.LockTx] locks in a transaction of yours. [Mutex.Lock] is for work elsewhere, which the
// database cannot take back when the session breaks. The Try forms never wait for another holder.
//
// [Mutex.Shared] is for readers, [Locker.Semaphore] lets n hold a lock at once, [Locker.Once] is
// for work that must not be done twice, [Locker.Claim] for what is held without a connection,
// [Locker.Election] for leaders, [Any] for the first free rows of a table. Making these sends
// nothing: a bad argument is an error from the call that locks. Many goroutines may use one value.
//
// # Order
//
// Callers of one process wait in line, see [WithQueue]. The server serves sessions in the order in
// which they arrive: on PostgreSQL for waits of up to a minute, on MySQL and MariaDB but for those
// that hold other rows.
//
// # Reentry
//
// Ownership follows the context that Do hands to its work and that [Lock.Context] returns. A call
// with it joins the session that it carries, and locks in its transaction. A goroutine without it
// is another owner, and [Apart] makes one of a goroutine that has it. What a session has locked is
// released together: when its last Lock is unlocked, or when the Do that began it returns.
//
// A Do in the work of a Do is a savepoint. One call at a time uses a session of a Do: a second one
// side by side is an error. A Do with the context of a Lock is [ErrInsideLock]. Give a job that
// outlives a Do or a Lock Apart(context.WithoutCancel(ctx)).
//
// # Slots collide
//
// Keys that hash to one slot exclude each other. Among 100 keys held at once, two share one of
// 65536 slots with a probability of 7 %. That costs waiting, a try that misses, or [ErrDeadlock] of
// sessions that hold one key and wait for another: name all keys in one Mutex to avoid that. Where
// collisions matter, lock your own rows with [Locker.Rows].
//
// # More
//
// Each held lock occupies a connection and an open transaction: docs/long-holds.md says what that
// holds back. [Locker.Inspect] shows who holds and who waits. docs/guarantees.md has every promise.
package txlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/heartbeat"
	"github.com/txlock/txlock/internal/queue"
)

// What can go wrong, to be told apart with errors.Is. The database driver's own error is reachable
// with errors.As.
var (
	// ErrNotAcquired occurs when a try finds the lock held or awaited, or a wait ends without it:
	// that matches the error of ctx as well, or context.DeadlineExceeded when Within ended it.
	ErrNotAcquired = dialects.ErrNotAcquired

	// ErrLost occurs when the session that held the lock is gone, or its transaction ended before
	// its work did: somebody else may have had the lock while its holder believed to have it. A Do
	// whose own context ended did not believe so: its error is that of the context. The work is not
	// committed, but for [ErrUnknown], and for what it has committed itself.
	ErrLost = dialects.ErrLost

	// ErrUnknown occurs when the connection broke while COMMIT may have been under way, of a Do or
	// an Exec: it may be committed or not. It matches [ErrLost] as well.
	ErrUnknown = dialects.ErrUnknown

	// ErrClaimEnded occurs when a claim is not its holder's any more. It matches [ErrLost] as well.
	ErrClaimEnded = fmt.Errorf("%w: the claim is over, was released, or another has it since", ErrLost)

	// ErrNotHeld occurs when Unlock is called on a lock that was released before, by itself or with
	// the Do in which it was taken, and when what Break is to end is not held any more.
	ErrNotHeld = errors.New("lock not held")

	// ErrInsideLock occurs when a Do of any kind is called with the context of a Lock: only Unlock
	// could commit the work. Begin with Do and call Lock in its work, or call with [Apart] of the
	// context.
	ErrInsideLock = errors.New("a Do inside a Lock: begin with Do, or use txlock.Apart")

	// ErrDeadlock occurs when the database chose this call as the victim of a deadlock. The locks
	// that were held before are kept on PostgreSQL; MySQL and MariaDB roll all of it back.
	ErrDeadlock = dialects.ErrDeadlock

	// ErrNotInstalled occurs when the lock table is missing, lacks a slot, or has another shape.
	ErrNotInstalled = dialects.ErrNotInstalled

	// ErrNoRow occurs when Rows names a row that does not exist. Such a row cannot be locked.
	ErrNoRow = dialects.ErrNoRow

	// ErrIsolation occurs when a transaction would read data from before the lock under it: LockTx
	// on PostgreSQL at REPEATABLE READ or SERIALIZABLE. Begin the transaction at READ COMMITTED.
	ErrIsolation = dialects.ErrIsolation

	// ErrUnsafeEngine occurs when Install or Check finds that the database does not exclude, before
	// the first lock on a server or a table that is known not to, and on one that only reads.
	ErrUnsafeEngine = dialects.ErrUnsafeEngine

	// ErrUpgrade occurs at once when a session that shares a row, or another of the same slot, asks
	// to have it alone: two that did so would wait for each other. It keeps what it holds.
	ErrUpgrade = errors.New("the session shares the lock, and cannot have it alone")

	// ErrRows occurs when a statement of Exec has affected another number of rows than it must, or
	// has returned none where its first row is asked for. Nothing is committed.
	ErrRows = dialects.ErrRows

	// ErrOtherPayload occurs when the work of a [OnceValue] was done with another payload.
	ErrOtherPayload = errors.New("the work was done with another payload")

	// ErrNoLeader occurs when nobody leads an election.
	ErrNoLeader = dialects.ErrNoLeader

	// ErrClosed occurs when the Locker is closed, and in the ErrLost of what was held then.
	ErrClosed = errors.New("the Locker is closed")
)

// Locker locks rows of one database. It is safe for use by many goroutines; a program needs one for
// each database. Tx is the transaction type of its driver, pgx.Tx or *sql.Tx.
type Locker[Tx any] struct {
	driver  dialects.Driver[Tx]
	config  config
	found   atomic.Pointer[dialects.LockTable] // nil before it is looked up
	looking chan struct{}                      // full while as many look it up as may at once
	info    func() dialects.Info
	lines   func() *lines

	// candidates are those of each election, semaphore and claim. One goes on at the server, and
	// keeps its place as long as it leads, or waits for a permit or the claim, whatever WithQueue
	// says.
	candidates *lines
	first      sync.Map        // chan struct{} of the one that waits for a permit or a claim, by its hash
	awaited    atomic.Int64    // claims
	naming     sync.Mutex      // of who asks the server who has a key
	closing    context.Context // ends with Close, which is its cause
	close      context.CancelCauseFunc
	atServer   sync.WaitGroup // waits there that Close ends; added to with mu held, in front of close
	mu         sync.Mutex
	open       map[*session[Tx]]bool  // not those that have ended
	timed      bool                   // a timer is set for lookAfter
	unwatched  []*heartbeat.Heartbeat // if any, a timer is set for watch
}

// New returns a Locker on driver. It sends nothing: a nil driver or a bad option is an error from
// the first call that can return one.
func New[Tx any](driver dialects.Driver[Tx], options ...Option) *Locker[Tx] {
	l := &Locker[Tx]{
		driver: driver, config: newConfig(options), open: make(map[*session[Tx]]bool), looking: make(chan struct{}, 4),
	}
	l.info = sync.OnceValue(func() dialects.Info { return driver.Info() })
	l.lines = sync.OnceValue(func() *lines {
		return queue.New[lineName](l.closing, cmp.Or(l.config.queue, max(l.info().PoolSize/4, 2)))
	})
	l.closing, l.close = context.WithCancelCause(context.Background())
	l.candidates = queue.New[lineName](l.closing, 1)
	if driver == nil && l.config.err == nil {
		l.config.err = errors.New("nil driver: give New a driver of dialects/postgres or dialects/mysql")
	}
	return l
}

// lookAfter looks after all sessions, and comes again as long as there are some. One timer does: a
// lock that is held briefly sets none.
func (l *Locker[Tx]) lookAfter() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.open {
		go s.heartbeat.Look()
	}
	if l.timed = len(l.open) > 0; l.timed {
		time.AfterFunc(heartbeat.Beat(l.config.lease), l.lookAfter)
	}
}

// watch has the kernel tell of the end of sessions that began a moment ago.
func (l *Locker[Tx]) watch() {
	l.mu.Lock()
	begun := l.unwatched
	l.unwatched = nil
	l.mu.Unlock() // nobody waits for what the kernel takes
	for _, h := range begun {
		h.Watch()
	}
}

// Close ends the sessions that are still held, as lost, and closes what the driver opened: a
// caller's pool stays open. The context of the work of a Do ends, and its transaction is rolled
// back. Who waits in the process, or in a [Combine] or an [Election], gets [ErrClosed], as later
// calls do. Cancel the contexts of those that wait at the server, or run an Exec. After 6 seconds
// Close returns an error, and what is left is closed when it ends.
func (l *Locker[Tx]) Close() error {
	if l.info == nil {
		return errZeroLocker
	}
	l.mu.Lock()
	l.close(ErrClosed)
	open := slices.Collect(maps.Keys(l.open))
	l.mu.Unlock()
	closed := make(chan error, 1)
	for _, s := range open {
		go func() {
			// The Do that runs in a session returns then, and ends it.
			if s.endLife(dialects.Lost(ErrClosed)); s.do == nil {
				_ = s.finish(context.Background(), false)
			}
		}()
	}
	go func() {
		for _, s := range open {
			<-s.ended
		}
		l.atServer.Wait()
		var err error
		if l.driver != nil {
			err = l.driver.Close()
		}
		closed <- err
	}()
	const limit = dialects.ReleaseTimeout + time.Second // what does not confirm is closed by then
	select {
	case err := <-closed:
		return err
	case <-time.After(limit):
		return fmt.Errorf("txlock: close: work still runs, calls still wait for a lock, or the server does not "+
			"answer, after %v", limit)
	}
}

// wrap says where an error comes from.
func wrap(where string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("txlock: %s: %w", where, err)
}

// made is a part of a value. A zero value has none, which is a bug of the caller's.
func made[Part any](part *Part, by string) *Part {
	if part == nil {
		panic("txlock: a zero " + by + " makes one")
	}
	return part
}
