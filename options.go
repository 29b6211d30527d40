package txlock

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/txlock/txlock/dialects"
)

// Option changes what New returns.
type Option interface{ apply(*config) }

type config struct {
	table   string
	slots   int // as asked for; 0: any
	lease   time.Duration
	fencing bool
	queue   int // sessions for each set of rows; 0: by the size of the pool
	hidden  bool
	logger  *slog.Logger
	tracer  Tracer // nil: none
	err     error  // the first bad option
}

func newConfig(options []Option) config {
	c := config{table: "txlock_slots", lease: defaultLease, logger: slog.New(slog.DiscardHandler)}
	for _, option := range options {
		if option == nil {
			c.reject(errors.New("nil option"))
			continue
		}
		option.apply(&c)
	}
	return c
}

func (c *config) reject(err error) {
	if c.err == nil {
		c.err = err
	}
}

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithTable names the lock table, "txlock_slots" by default: name or schema.name, spelled as in
// SQL. A part that SQL would need quotes for may be quoted, with " on PostgreSQL and ` on MySQL and
// MariaDB. All clients must name the same table: on PostgreSQL name its schema, too, where clients
// differ in search_path.
func WithTable(name string) Option {
	return optionFunc(func(c *config) {
		c.table = name
		if name == "" {
			c.reject(errors.New("WithTable: empty name"))
		}
	})
}

// WithSlots is the number of slots that Install seeds, 65536 by default, at most 1048576. Only
// Install and Schema read it. Everything else goes by the number that the table was seeded with,
// and Install refuses a table that was seeded with another.
func WithSlots(n int) Option {
	return optionFunc(func(c *config) {
		c.slots = n
		if n < 1 || n > dialects.MaxSlots {
			c.reject(fmt.Errorf("WithSlots(%d): the number must be from 1 to %d", n, dialects.MaxSlots))
		}
	})
}

const (
	// defaultLease is longer than a healthy program or network is silent: a garbage collection, a
	// switch of the network, the move of a virtual machine take seconds. It is shorter than people
	// wait before they call somebody.
	defaultLease = 30 * time.Second
	// maxLease is a little less than what the servers' timers hold, 2^31 milliseconds.
	maxLease = 24 * 24 * time.Hour
)

// WithLease is how long a session that holds locks may be silent before the server ends it: 30 s by
// default, at most 24 days, at least 1 ms on PostgreSQL, and 1 s on MySQL and MariaDB, which count
// whole seconds, rounded up. A crash frees the lock at once; the lease matters when a holder is
// stopped, or cut off without the server being told. A heartbeat, every twelfth to sixth of d,
// keeps a Lock alive; without an answer its Context ends a tenth of d before the server can end the
// session, at most a second. Work of a Do that sends no statement for d loses the lock. LockTx does
// not read d.
func WithLease(d time.Duration) Option {
	return optionFunc(func(c *config) {
		c.lease = d
		if d <= 0 || d > maxLease {
			c.reject(fmt.Errorf("WithLease(%v): the lease must be positive and at most %v", d, maxLease))
		}
	})
}

// WithFencing makes Lock.Token a fencing token.
func WithFencing() Option { return optionFunc(func(c *config) { c.fencing = true }) }

// WithQueue lets at most n sessions of this Locker wait for or hold the same set of rows at the
// server, at least 1; a quarter of the pool's connections by default, at least 2, and 2 for a pool
// without a limit. The other callers wait in the process, first come, first served, without a
// connection. With more than two, callers on their way to the server at the same moment may
// overtake each other; between processes the order is that of sessions. A Try misses when somebody
// waits in the process, or all n are in use. Calls that join a session, LockTx and callers of
// [Mutex.Shared] pass by.
func WithQueue(n int) Option {
	return optionFunc(func(c *config) {
		c.queue = n
		if n < 1 {
			c.reject(fmt.Errorf("WithQueue(%d): at least 1 session must be allowed", n))
		}
	})
}

// WithHiddenKeys keeps keys from the server: those of Mutex, Once and Shared, and the names of
// semaphores and elections, show in no view, statement, table or log of the server. Sessions show
// numbers of slots instead, and the beginning of a hash of a semaphore's key. Clients with and
// without it exclude each other. What a client without it has locked shows: the tables of
// semaphores and elections then keep the name.
//
// [Locker.Inspect] finds a hidden key for who names it. Who can read the lock's tables or the
// server's views can try keys in the same way: hidden is not secret where keys can be guessed.
//
// Values of [Locker.Rows] are left out of what sessions show, so Inspect does not find these locks.
// They stand in the statement on MySQL and MariaDB, in its parameters on PostgreSQL, and in views
// of the server's locks. Identities of an [Election] are stored as they are, to be read. What the
// work of a Do sends is its own. Errors, the log and a [Tracer] of this process name keys.
func WithHiddenKeys() Option { return optionFunc(func(c *config) { c.hidden = true }) }

// WithLogger gives New a logger for what must not go unnoticed. Warnings: a lock was lost, a
// connection was closed because its release was not confirmed, Break has ended a session, Lead of
// an [Election] has to campaign again. Errors: Check refuses the server. Debug: a session has ended
// with the context of its Do. Attributes are "lock", "table", "session", "election", "pause" and
// "error". Without it, txlock is silent. It must not be nil.
func WithLogger(logger *slog.Logger) Option {
	return optionFunc(func(c *config) {
		if logger == nil {
			c.reject(errors.New("WithLogger: nil logger"))
			return
		}
		c.logger = logger
	})
}

// WithTracer tells tracer of every call that locks. It must not be nil.
func WithTracer(tracer Tracer) Option {
	return optionFunc(func(c *config) {
		if tracer == nil {
			c.reject(errors.New("WithTracer: nil tracer"))
			return
		}
		c.tracer = tracer
	})
}
