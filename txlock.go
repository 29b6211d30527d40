// Package txlock is mutual exclusion that lives and dies with a database transaction, on
// PostgreSQL, MySQL and MariaDB.
//
// A [Locker] names the database, a [Mutex] what to lock there:
//
//	locks := txlock.New(driver) // of postgres.Open, New, NewSQL, or mysql.Open, New
//	err := locks.Install(ctx)   // creates the lock table; idempotent
//
//	err = locks.Mutex("sku:42").Do(ctx, func(ctx context.Context, tx pgx.Tx) error {
//		_, err := tx.Exec(ctx, "UPDATE inventory SET stock = stock - 1 WHERE sku = 42")
//		return err
//	})
//
// # What a lock is
//
// A lock is a row that a database session has locked with SELECT … FOR UPDATE in an open
// transaction. Keys of [Locker.Mutex] are hashed to slots: rows of a table that Install seeds.
// [Locker.Rows] locks rows of your own table. The database sees to it that one session holds a row,
// and frees the row when the session ends, for whatever reason. No client's clock decides.
//
// # Which call to use
//
// [Mutex.Do] does the work in the lock's own transaction. The work commits only if the lock was
// held from the first statement to the commit: prefer Do wherever the work is in this database.
// [Mutex.Exec] is that for a list of statements, in one round trip or two. [Mutex.LockTx] locks in
// a transaction of yours.
// [Combine] does the work of many callers in one transaction, for rows that many want at once.
// [Mutex.Lock] holds a lock for work elsewhere, which the database cannot take back when the
// session breaks. The Try forms never wait for another holder. [Mutex.Shared] is for readers,
// [Locker.Semaphore] lets n hold a lock at once, [Locker.Once] is for work that must not be done
// twice, [Locker.Claim] for what is held without a connection, [Locker.Election] for leaders.
//
// # Order
//
// Callers of one process wait in line in it, see [WithQueue]. The sessions of all processes queue
// at the server, which serves them in the order in which they arrive: on PostgreSQL for waits of up
// to a minute, on MySQL and MariaDB but for waiters that hold other rows. A waiter that gives up
// leaves its queue at once. One that dies delays the next by half a second at most.
//
// # Reentry
//
// Ownership follows the context that Do hands to its work and that [Lock.Context] returns. A call
// with such a context joins the session that it carries, and locks in its transaction, on its
// connection. A goroutine without that context is another owner, and [Apart] makes one of a
// goroutine that has it. What a session has locked is released together: when its last Lock is
// unlocked, or when the Do that began it returns.
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
// # Long holds
//
// Each held lock occupies a connection and an open transaction. On PostgreSQL a Lock of keys is
// renewed every minute. A Do and a Lock of Rows hold back vacuum and CREATE INDEX CONCURRENTLY as
// long as they last, and on MariaDB every lock holds back purge: keep these short. The server ends
// a session that is silent for its lease, see [WithLease]. Heartbeats keep a healthy Lock alive;
// the work of a Do must send a statement in time.
//
// [Locker.Inspect] shows who holds and who waits. docs/guarantees.md has every promise.
package txlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/heartbeat"
	"github.com/txlock/txlock/internal/lookout"
	"github.com/txlock/txlock/internal/queue"
)

// What can go wrong, to be told apart with errors.Is. The database driver's own error is reachable
// with errors.As.
var (
	// ErrNotAcquired occurs when a try finds the lock held or awaited, or a wait ends without the
	// lock. A wait that ctx ended matches the error of ctx as well, one that Within ended
	// context.DeadlineExceeded. It also occurs at once for a call in a session in which a nested Do
	// is running: the text says so.
	ErrNotAcquired = dialects.ErrNotAcquired

	// ErrLost occurs when the session that held the lock is gone, or its transaction ended before
	// its work did: somebody else may have had the lock while its holder believed to have it. A Do
	// whose own context ended did not believe so: its error is that of the context. What the work
	// did is not committed, with two exceptions: [ErrUnknown], or the work itself has sent COMMIT
	// before.
	ErrLost = dialects.ErrLost

	// ErrUnknown occurs when the connection broke while COMMIT may have been under way, of a Do or
	// an Exec: it may be committed or not. It matches [ErrLost] as well.
	ErrUnknown = dialects.ErrUnknown

	// ErrClaimEnded occurs when a claim is not its holder's any more: its time is over, it was
	// released or broken, or another has taken it since. It matches [ErrLost] as well. Nothing was
	// committed.
	ErrClaimEnded = fmt.Errorf("%w: the claim is not held any more", ErrLost)

	// ErrNotHeld occurs when Unlock is called on a lock that was unlocked before, or was released
	// with the Do in which it was taken, whose context ended with it then; and when the session
	// that Break is to end does not hold any more.
	ErrNotHeld = errors.New("lock not held")

	// ErrInsideLock occurs when a Do of any kind is called with the context of a Lock. The work
	// could only be committed by the Unlock, whose error nobody reads. Nothing was sent. Begin with
	// Do and call Lock in its work, or call with [Apart] of the context, as another owner.
	ErrInsideLock = errors.New("a Do inside a Lock: begin with Do, or use txlock.Apart")

	// ErrDeadlock occurs when the database chose this call as the victim of a deadlock. On MySQL
	// and MariaDB that rolls the whole transaction back, locks included. On PostgreSQL the locks
	// that were held before are kept.
	ErrDeadlock = dialects.ErrDeadlock

	// ErrNotInstalled occurs when the lock table is missing, lacks a slot that is needed, or has
	// another shape.
	ErrNotInstalled = dialects.ErrNotInstalled

	// ErrNoRow occurs when Rows names a row that does not exist. Such a row cannot be locked.
	ErrNoRow = dialects.ErrNoRow

	// ErrIsolation occurs when a transaction would read data from before the lock under it: LockTx
	// on PostgreSQL at REPEATABLE READ or SERIALIZABLE. Begin the transaction at READ COMMITTED.
	ErrIsolation = dialects.ErrIsolation

	// ErrUnsafeEngine occurs when Install or Check finds that the database does not exclude, and
	// before the first lock on a server that is known not to, see [Locker.Check]; on MySQL and
	// MariaDB also with binlog_format = STATEMENT, and for a table of which the server locks no
	// rows; and for Shared, for a Semaphore and from Ping on a server that only reads.
	ErrUnsafeEngine = dialects.ErrUnsafeEngine

	// ErrUpgrade occurs at once when a session that shares a row asks to have it alone, see
	// [Mutex.Shared]: two that did so would wait for each other. The row may be that of another
	// key, whose slot is the same. The session keeps what it holds.
	ErrUpgrade = errors.New("the session shares the lock, and cannot have it alone")

	// ErrRows occurs when a statement of Exec has affected another number of rows than it must, or
	// has returned none where its first row is asked for. Nothing is committed.
	ErrRows = dialects.ErrRows

	// ErrNoLeader occurs when nobody leads an election.
	ErrNoLeader = dialects.ErrNoLeader

	// ErrClosed occurs when the Locker is closed, and as the reason of the ErrLost of what was held
	// then.
	ErrClosed = errors.New("the Locker is closed")
)

// Locker locks rows of one database. It is safe for use by many goroutines; a program needs one for
// each database. Tx is the transaction type of its driver, pgx.Tx or *sql.Tx.
type Locker[Tx any] struct {
	driver dialects.Driver[Tx]
	config config
	found  atomic.Pointer[dialects.LockTable] // nil before it is looked up
	info   func() dialects.Info
	lines  func() *lines

	candidates *lines   // of each election and semaphore, of whom one goes on at the server
	semaphores sync.Map // *semaphore, by the hash of its key

	lookout *lookout.Lookout // for claims
	naming  sync.Mutex       // of who asks the server who has a key

	closing  context.Context // ends with Close, which is its cause
	close    context.CancelCauseFunc
	atServer sync.WaitGroup // waits there that Close ends; added to with mu held
	mu       sync.Mutex
	closed   atomic.Bool // set with mu held
	sessions heartbeat.Sessions[*session[Tx]]
}

// New returns a Locker on driver. It sends nothing: a nil driver or a bad option is an error from
// the first call that can return one.
func New[Tx any](driver dialects.Driver[Tx], options ...Option) *Locker[Tx] {
	l := &Locker[Tx]{driver: driver, config: newConfig(options)}
	l.info = sync.OnceValue(func() dialects.Info { return driver.Info() })
	l.lines = sync.OnceValue(l.newLines)
	l.closing, l.close = context.WithCancelCause(context.Background())
	l.candidates = queue.New[lineName](l.closing, 1)
	l.lookout = lookout.New(l.closing, l.lookAtClaims)
	if driver == nil && l.config.err == nil {
		l.config.err = errors.New("nil driver: give New a driver of dialects/postgres or dialects/mysql")
	}
	return l
}

// Close ends the sessions that are still held, each of them as lost, and closes what the driver
// opened. A caller's pool stays open. Later calls return an error. The context of work that runs in
// a Do ends, and its transaction is rolled back. Who waits in the process gets [ErrClosed], also in
// the queue of a [Combine] or an [Election]. Other calls that wait at the server do not, nor does
// an [Mutex.Exec], which may still commit: cancel their contexts. After 6 seconds Close returns an
// error, and what is left is closed when it ends.
func (l *Locker[Tx]) Close() error {
	if l.info == nil {
		return errZeroLocker
	}
	l.mu.Lock()
	l.closed.Store(true)
	l.mu.Unlock()
	l.close(ErrClosed)
	open := l.sessions.All()
	closed := make(chan error, 1)
	for _, s := range open {
		go s.abort()
	}
	go func() {
		for _, s := range open {
			<-s.ended
		}
		l.atServer.Wait()
		if l.driver == nil {
			closed <- nil
			return
		}
		closed <- l.driver.Close()
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

var errZeroLocker = errors.New("a zero Locker: New makes one")

// ready is an error for what is wrong without a look at the database.
func (l *Locker[Tx]) ready() error {
	if l.info == nil {
		return errZeroLocker
	}
	if l.config.err != nil {
		return l.config.err
	}
	info := l.info()
	if info.Err != nil {
		return info.Err
	}
	if l.config.lease < info.MinLease {
		return fmt.Errorf("WithLease(%v): the lease must be at least %v, the server's timer is no finer",
			l.config.lease, info.MinLease)
	}
	if l.closed.Load() {
		return ErrClosed
	}
	return nil
}

// wrap says where an error comes from.
func wrap(where string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("txlock: %s: %w", where, err)
}

func (m *Mutex[Tx]) wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return wrap(verb+" "+m.target.String(), err)
}

// joinErrors is err, and a further error, as of the way out, unless err says that already.
func joinErrors(err, further error) error {
	switch {
	case further == nil || errors.Is(err, further):
		return err
	case err == nil:
		return further
	case errors.Is(err, ErrLost) && errors.Is(further, ErrLost):
		return err
	}
	return fmt.Errorf("%w (%w)", err, further)
}
