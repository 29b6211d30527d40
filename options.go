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
	handOff handOff
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

// WithLease is how long a session that holds locks may be silent before the server ends it, 30 s by
// default. It matters when a holder is stopped, or cut off from the network without the server
// being told. A crash frees the lock at once.
//
// A heartbeat, every twelfth to sixth of d, keeps a healthy Lock alive for as long as it is held.
// When no answer comes, its Context ends before the server can end the session: a tenth of d
// before, at most a second, counted from when the last answered heartbeat was sent.
//
// The work of a Do has the session for itself. Work that sends no statement for d loses the lock:
// raise d where work computes for long. LockTx changes nothing in the caller's session, whose own
// settings decide.
//
// d is at most 24 days, and at least 1 ms on PostgreSQL, 1 s on MySQL and MariaDB, where the server
// counts whole seconds, rounded up.
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

// WithLogger gives New a logger for what must not go unnoticed. Warnings: a lock was lost, a
// connection was closed because its release was not confirmed, Break has ended a session, Lead of
// an [Election] has to campaign again. Errors: Check refuses the server. Attributes are "lock",
// "table", "session", "election", "pause" and "error". Without it, txlock is silent. It must not be
// nil.
func WithLogger(logger *slog.Logger) Option {
	return optionFunc(func(c *config) {
		if logger == nil {
			c.reject(errors.New("WithLogger: nil logger"))
			return
		}
		c.logger = logger
	})
}
