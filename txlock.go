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
// and frees the row when the session ends, for whatever reason. A crash frees a lock at once. No
// client's clock decides who holds it.
//
// # Which call to use
//
// [Mutex.Do] does the work in the lock's own transaction. The work commits only if the lock was
// held from the first statement to the commit. That is the strongest promise a lock can give:
// prefer Do wherever the work is in this database. [Mutex.LockTx] locks in a transaction of yours.
// [Combine] does the work of many callers in one transaction, for rows that many want at once.
// [Mutex.Lock] holds a lock for work elsewhere, which the database cannot take back when the
// session breaks. The Try forms never wait for another holder. [Mutex.Shared] is for readers, who
// hold a lock together while no writer has it. [Locker.Semaphore] lets n hold it at once, and
// [Locker.Once] is for work that must not be done twice.
//
// # Order
//
// Callers of one process queue in it, and as many sessions as [WithQueue] allows queue at the
// server, where those of all processes are served in the order in which they arrive. So the order
// within a process is that of the calls, and between processes that of their sessions. On MySQL and
// MariaDB a waiter that holds other rows may overtake. On MySQL another may, now and then, where
// waits for other rows come and go. On PostgreSQL a wait goes to the end of the queue when somebody
// else, CREATE INDEX CONCURRENTLY say, waits for it, and every two and a half minutes. A waiter
// that gives up leaves its queue at once. One that dies delays the next by half a second at most.
//
// # Reentry
//
// Ownership follows the context that Do hands to its work and that [Lock.Context] returns. A call
// with such a context joins the session that it carries. Locking a held key again succeeds at once.
// Another key is locked in the same transaction, on the same connection. A goroutine without that
// context is another owner. [Apart] makes one of a goroutine that has it.
//
// A job that outlives a Do or a Lock must not have its context, not by context.WithoutCancel
// either, which keeps the ownership: as long as the session is there, what the job locks and does
// belongs to that session, and ends with it, and the Do waits for calls that are under way. Give it
// Apart(context.WithoutCancel(ctx)).
//
// A Do in the work of a Do is a savepoint. While it runs, only calls with the context of its own
// work may join the session: others get an error that says so. A Do with the context of a Lock is
// [ErrInsideLock].
//
// The database cannot release one row of a transaction, so what a session has locked is released
// together: when its last Lock is unlocked, or when the Do that began it returns. When a nested Do
// fails, the locks that were taken in its work end with it. On MySQL and MariaDB their rows stay
// locked until the session ends.
//
// # Slots collide
//
// Keys that hash to one slot exclude each other. Among 100 keys held at once, two share one of
// 65536 slots with a probability of 7 %. That costs waiting, or a try that misses, never exclusion.
// A session that shares a key gets [ErrUpgrade] when it asks for the other alone. Where it matters,
// lock your own rows with [Locker.Rows]. Two sessions that each hold one key and wait for another
// may meet in a deadlock through a collision: the database detects it, and one call gets
// [ErrDeadlock]. Name all keys in one Mutex to avoid that.
//
// # Who holds it
//
// [Locker.Inspect] shows who holds and who waits. [Locker.Break] ends a stuck holder's session.
// [WithLogger] tells what must not go unnoticed, [WithTracer] tells of every call. A session shows
// the keys that it locks in the server's own views, unless [WithHiddenKeys] says otherwise.
//
// # Long holds
//
// Each held lock occupies a connection and an open transaction. On PostgreSQL a Lock of up to 32
// keys is renewed every minute, so that it holds back neither vacuum nor CREATE INDEX CONCURRENTLY.
// A Do and a Lock of Rows hold them back as long as they last: keep these short. On MariaDB every
// lock holds back purge, a leader's too. [Locker.Election] is for leaders.
//
// A session that is silent for its lease, 30 s unless [WithLease] says otherwise, is ended by the
// server: a safety net for a network that went silent. Heartbeats keep a healthy Lock alive. The
// work of a Do must send a statement once in a lease.
package txlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txlock/txlock/dialects"
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
	// its work did. What the work did is not committed, with two exceptions: the error says that
	// the connection broke during COMMIT, or the work itself has sent COMMIT before.
	ErrLost = dialects.ErrLost

	// ErrNotHeld occurs when Unlock is called on a lock that was unlocked before. It is also why
	// the context of a lock ends, and what its Unlock returns, when the lock was released with the
	// Do in which it was taken; and what Break returns when its session does not hold any more.
	ErrNotHeld = errors.New("lock not held")

	// ErrInsideLock occurs when a Do of any kind is called with the context of a session that a
	// Lock began. The work could only be committed by the Unlock, whose error nobody reads. Nothing
	// was sent. Begin with Do and call Lock in its work, or call with [Apart] of the context, as
	// another owner.
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
	// on PostgreSQL at REPEATABLE READ or SERIALIZABLE. Begin the transaction at READ COMMITTED. On
	// MySQL and MariaDB with binlog_format = STATEMENT it is the other way round: LockTx at READ
	// COMMITTED, and a further lock inside the work of a Do.
	ErrIsolation = dialects.ErrIsolation

	// ErrUnsafeEngine occurs when Install or Check finds that the database does not exclude, and
	// before the first lock on a server that is known not to: TiDB, Dolt, or a node of a cluster
	// whose nodes all take writes. It also occurs when a call of Shared comes to a server whose
	// shared locks exclude nobody: a standby, or one that is read only. On a PostgreSQL standby it
	// occurs for a Semaphore as well, and Ping returns it for both. On MySQL and MariaDB it occurs
	// for a table of which the server locks no rows.
	ErrUnsafeEngine = dialects.ErrUnsafeEngine

	// ErrUpgrade occurs when a session that shares a row asks to have it alone, see [Mutex.Shared].
	// The row may be that of another key, whose slot is the same. It comes at once, and nothing is
	// sent: two sessions that did so would wait for each other. The session keeps what it holds.
	// Take the lock without Shared from the start, or release it first.
	ErrUpgrade = errors.New("the session shares the lock, and cannot have it alone")

	// ErrNoLeader occurs when nobody leads an election.
	ErrNoLeader = dialects.ErrNoLeader
)

var errClosed = errors.New("the Locker is closed")

// Locker locks rows of one database. It is safe for use by many goroutines; a program needs one for
// each database. Tx is the transaction type of its driver, pgx.Tx or *sql.Tx.
type Locker[Tx any] struct {
	driver dialects.Driver[Tx]
	config config
	found  atomic.Pointer[dialects.LockTable] // nil before it is looked up
	lines  func() *lines[Tx]

	candidates *lines[Tx] // of each election and semaphore, of whom one goes on at the server
	seats      sync.Map   // dialects.Seats by the election's key, for those that only read
	permits    sync.Map   // dialects.Permits by the semaphore's name in the table

	closing context.Context // ends with Close
	close   context.CancelFunc
	waits   sync.WaitGroup // at the server, that Close ends

	closed   atomic.Bool // set with mu held
	mu       sync.Mutex
	sessions map[*session[Tx]]struct{} // open ones
	beat     *time.Timer               // calls lookAfter; nil before the first session
	beating  bool                      // beat is set
}

// New returns a Locker on driver. It sends nothing: a nil driver or a bad option is an error from
// the first call that can return one.
func New[Tx any](driver dialects.Driver[Tx], options ...Option) *Locker[Tx] {
	l := &Locker[Tx]{driver: driver, config: newConfig(options), sessions: make(map[*session[Tx]]struct{})}
	l.lines = sync.OnceValue(l.newLines)
	l.candidates = queue.New[line](1, giveBack[Tx])
	l.closing, l.close = context.WithCancel(context.Background())
	if driver == nil && l.config.err == nil {
		l.config.err = errors.New("nil driver: give New a driver of dialects/postgres or dialects/mysql")
	}
	return l
}

// Install creates the lock table and seeds its slots, and creates what stands beside it, for
// tokens, elections and semaphores. It may be called at every start, by many replicas at once. It
// completes what an earlier call left when it crashed, and refuses to change the number of slots of
// an installed table. One that falls silent keeps the others waiting for the lease at most, or for
// 5 s. After an error nothing has changed, unless the connection broke or ctx ended: on MySQL and
// MariaDB empty tables may be left then. Where programs may not create tables, run the SQL of
// [Locker.Schema].
//
// Install ends with the proof of [Locker.Check], unless the pool has one connection only. A server
// that does not exclude is [ErrUnsafeEngine]; the tables are left. With any other error of the
// proof, as for want of a second connection, Install returns nil, and the log tells.
func (l *Locker[Tx]) Install(ctx context.Context) error {
	if err := l.ready(); err != nil {
		return fmt.Errorf("txlock: install: %w", err)
	}
	var found *dialects.LockTable
	err := l.driver.Install(ctx, l.layout(l.config.slots))
	if err == nil {
		l.found.Store(nil) // it may be another table now
		found, err = l.find(ctx, false)
	}
	if err != nil {
		return fmt.Errorf("txlock: install: %w", err)
	}
	if l.driver.PoolSize() == 1 {
		return nil
	}
	err = l.driver.Check(ctx, found.Name, l.patience())
	switch {
	case errors.Is(err, ErrUnsafeEngine) && ctx.Err() == nil: // else it says nothing about the engine
		l.config.logger.ErrorContext(ctx, doesNotExclude, "table", l.config.table, "error", err)
		return fmt.Errorf("txlock: install: %w", err)
	case err != nil:
		l.config.logger.WarnContext(ctx, "txlock: installed, but whether this server excludes was not proved", "table",
			l.config.table, "error", err)
	}
	return nil
}

const doesNotExclude = "txlock: this server does not exclude, do not use it for locks"

// Schema returns what Install does as SQL text, statements ended by semicolons, for a migration
// tool. It is empty when an option is bad; Install says which.
func (l *Locker[Tx]) Schema() string {
	if l.config.err != nil {
		return ""
	}
	slots := l.config.slots
	if slots == 0 {
		slots = dialects.DefaultSlots
	}
	text, err := l.driver.Schema(l.layout(slots))
	if err != nil {
		return ""
	}
	return text
}

func (l *Locker[Tx]) layout(slots int) dialects.Layout {
	return dialects.Layout{Table: l.config.table, Slots: slots, Lease: l.patience()}
}

// patience is how long Install and Check may keep others waiting when they fall silent. They have
// no heartbeat, so it is not as short as a lease may be.
func (l *Locker[Tx]) patience() time.Duration { return max(l.config.lease, releaseTimeout) }

// Check proves that this server excludes. It locks a free slot on one connection. Another must be
// refused with the exact error, must skip the row, and must get it when it is free. The same goes
// for a slot that is shared. Anything else is [ErrUnsafeEngine]: some engines take the syntax and
// lock nothing. So is a node of a cluster whose nodes all take writes, because each node locks for
// itself: Galera, a replication group in multi-primary mode, pgactive, BDR, Spock, and a lock table
// that PostgreSQL's subscriptions bring in and publications carry out.
//
// Install ends with the same proof. Call Check at start where Install is not called. It takes two
// connections. For a readiness probe there is [Locker.Ping].
func (l *Locker[Tx]) Check(ctx context.Context) error {
	if err := l.ready(); err != nil {
		return fmt.Errorf("txlock: check: %w", err)
	}
	found, err := l.find(ctx, false)
	if err == nil {
		err = l.driver.Check(ctx, found.Name, l.patience())
	}
	if err != nil {
		if ended := ctx.Err(); ended != nil { // says nothing about the engine
			return fmt.Errorf("txlock: check: %w", ended)
		}
		if errors.Is(err, ErrUnsafeEngine) {
			l.config.logger.ErrorContext(ctx, doesNotExclude, "table", l.config.table, "error", err)
		}
		return fmt.Errorf("txlock: check: %w", err)
	}
	return nil
}

// Ping asks whether locks can be taken at this server, in one round trip and without a lock: for
// readiness probes. After nil the server has answered, takes writes, and has the lock table. What
// may still fail is what only a lock meets: slots that are missing, a privilege, a full pool. A
// table that is missing or empty is [ErrNotInstalled]. A standby, or a server that is read only, is
// [ErrUnsafeEngine]. Ping waits for a connection of the pool as long as ctx allows. The first call
// may take a round trip more.
func (l *Locker[Tx]) Ping(ctx context.Context) error {
	err := l.ready()
	if err == nil {
		table := l.config.table
		if found := l.found.Load(); found != nil {
			table = found.Name
		}
		err = l.driver.Ping(ctx, table)
		l.forget(err)
	}
	if err != nil {
		err = fmt.Errorf("txlock: ping: %w", err)
	}
	return err
}

// Close ends the sessions that are still held, each of them as lost, and closes what the driver
// opened. A caller's pool stays open. Later calls return an error. The context of work that still
// runs in a Do ends, and its transaction is rolled back. Calls that wait in the process end with an
// error, see [WithQueue]. So do candidates of an [Election], and the batches of a [Combine] that
// wait at the server. Other calls that wait there do not: cancel their contexts. Close waits 6
// seconds for both, and for the server. After that it returns an error, and what is left is closed
// when it ends.
func (l *Locker[Tx]) Close() error {
	l.mu.Lock()
	l.closed.Store(true)
	open := make([]*session[Tx], 0, len(l.sessions))
	for s := range l.sessions {
		open = append(open, s)
	}
	l.mu.Unlock()
	l.close()
	if l.config.err == nil {
		l.lines().Close(errClosed)
		l.candidates.Close(errClosed)
	}
	closed := make(chan error, 1)
	for _, s := range open {
		go s.abort()
	}
	go func() {
		for _, s := range open {
			<-s.life.Ended()
		}
		l.waits.Wait()
		if l.driver == nil {
			closed <- nil
			return
		}
		closed <- l.driver.Close()
	}()
	patience := time.NewTimer(releaseTimeout + time.Second) // what does not confirm is closed by then
	defer patience.Stop()
	select {
	case err := <-closed:
		return err
	case <-patience.C:
		return fmt.Errorf("txlock: close: work still runs, calls still wait for a lock, or the server does not "+
			"answer, after %v", releaseTimeout+time.Second)
	}
}

func (l *Locker[Tx]) ready() error {
	if l.config.err != nil {
		return l.config.err
	}
	if least := l.driver.MinLease(); l.config.lease < least {
		return fmt.Errorf("WithLease(%v): the lease must be at least %v, the server's timer is no finer",
			l.config.lease, least)
	}
	if l.closed.Load() {
		return errClosed
	}
	return nil
}

// Mutex names rows to lock. It holds no state: many goroutines may use one value, and any two that
// name the same key exclude each other.
type Mutex[Tx any] struct {
	locker *Locker[Tx]
	name   string // for errors
	target target
	within time.Duration // 0 without a limit
	shared bool
	marker *dialects.Marker // of Once, else nil
	err    error
}

// Mutex names one or more keys. They are locked together in one statement, in an order that is the
// same everywhere, so two calls with the same keys in any order cannot block each other. A key is
// any text of at least one byte. No key, or an empty one, is an error from the call that locks.
// Mutex sends nothing.
func (l *Locker[Tx]) Mutex(keys ...string) *Mutex[Tx] {
	target, err := slotsOf(keys)
	return &Mutex[Tx]{locker: l, name: nameOf(keys), target: target, err: err}
}

// Rows names rows of a table of the caller's: those whose column has one of values. The column must
// be unique and indexed. Values are strings, integers, floats, booleans, []byte for a binary
// column, or a driver.Valuer of these. A row that does not exist is [ErrNoRow]. On MySQL and
// MariaDB a view, a temporary table, and a table of an engine that locks no rows are
// [ErrUnsafeEngine].
// Table and column are spelled as in SQL: schema.table, and in quotes where SQL needs them. Spell
// them the same way everywhere: the order of waiters depends on it. Rows sends nothing.
func (l *Locker[Tx]) Rows(table, column string, values ...any) *Mutex[Tx] {
	target, err := rowsOf(table, column, values)
	if err == nil && strings.EqualFold(table, l.config.table) {
		err = fmt.Errorf("Rows of %s: that is the lock table, whose rows belong to Mutex", table)
	}
	return &Mutex[Tx]{locker: l, name: nameOfRows(table, column, values), target: target, err: err}
}

// Within returns a copy that waits at most d for the lock. The wait for a connection of the pool
// counts, the holding does not. d must be positive.
func (m *Mutex[Tx]) Within(d time.Duration) *Mutex[Tx] {
	limited := *m
	limited.within = d
	if d <= 0 && limited.err == nil {
		limited.err = fmt.Errorf("Within(%v): the limit must be positive", d)
	}
	return &limited
}

// Lock waits for the lock and returns it held. ctx and Within limit the wait only, never the
// holding. Every Lock needs its Unlock.
//
// After an error nothing is held: [ErrNotAcquired] when the wait was ended. A lock that is granted
// while ctx ends is released again.
func (m *Mutex[Tx]) Lock(ctx context.Context) (*Lock, error) {
	return m.lock(ctx, "Lock", false)
}

// Do waits for the lock, runs work in the lock's own transaction, at READ COMMITTED, and commits.
// It returns nil only when the commit succeeded, and the commit succeeds only if the lock was held
// from the first statement on. Otherwise nothing that work did is committed:
//
//   - work returns an error, which Do returns, or panics: Do goes on panicking;
//   - ctx has ended;
//   - [ErrLost]: the session broke, or work ended the transaction itself, by ROLLBACK, or on MySQL
//     and MariaDB by a deadlock whose error it swallowed.
//
// Work that sends COMMIT itself commits what it did until then, under the lock. What comes after
// that is not committed, and Do returns ErrLost. When the connection breaks during COMMIT, nobody
// can say whether it took place; the error says so.
//
// The context that work gets carries ownership, see Reentry: a job that goes on after work must not
// have it, also without its cancellation. tx must not be used after work returned.
//
// In the work of another Do, work runs in a savepoint of that Do's transaction. An error undoes
// work alone, and ends the locks that were taken in it; nil means that the outermost Do will commit
// it. In a session that a Lock began, Do is [ErrInsideLock]. Work that rolls back to a savepoint of
// its own should have unlocked what it has locked since: PostgreSQL releases that.
func (m *Mutex[Tx]) Do(ctx context.Context, work func(ctx context.Context, tx Tx) error) error {
	return m.do(ctx, "Do", false, work)
}

// LockTx waits for the lock in a transaction that the caller began and will end. The lock is
// released when that transaction ends, and on PostgreSQL when it is rolled back to an earlier
// savepoint. A limit of the session's own ends the wait as well, with [ErrNotAcquired]:
// lock_timeout on PostgreSQL, innodb_lock_wait_timeout (50 s unless changed) on MySQL and MariaDB.
// When ctx ends while the lock is being granted, LockTx may return nil with the lock held.
//
// After an error the transaction is usable, and its settings are what they were. There are two
// exceptions, after which it must be rolled back: [ErrLost], and [ErrDeadlock] on MySQL and
// MariaDB. There, some keys of a failed call may also stay locked until the transaction ends.
//
// On PostgreSQL the transaction must be at READ COMMITTED, else [ErrIsolation]. A wait that keeps
// others from their work may lose its place in the queue; see docs/databases.md. On MySQL and
// MariaDB at REPEATABLE READ, their default, lock before the transaction's first plain SELECT: that
// one takes the snapshot that all later ones read.
func (m *Mutex[Tx]) LockTx(ctx context.Context, tx Tx) error {
	return m.lockTx(ctx, "LockTx", tx, false)
}

func (m *Mutex[Tx]) lockTx(ctx context.Context, verb string, tx Tx, try bool) error {
	ctx, trace := m.asked(ctx, verb, false)
	err := m.lockIn(ctx, verb, tx, try)
	trace.answer(err)
	return err
}

func (m *Mutex[Tx]) lockIn(ctx context.Context, verb string, tx Tx, try bool) error {
	wait, cancel, err := m.limitWait(ctx)
	if err != nil {
		return m.failed(verb, err)
	}
	defer cancel()
	for again := false; ; again = true {
		request, err := m.request(wait, try, true)
		if err == nil {
			request.Marker = m.markerIn(request.Table)
			err = m.locker.driver.LockTx(wait, tx, request)
		}
		if again || !m.outdated(err) {
			return m.failed(verb, m.judge(ctx, wait, err))
		}
	}
}
