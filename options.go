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
// MariaDB. All clients must name the same table.
func WithTable(name string) Option {
	return optionFunc(func(c *config) {
		c.table = name
		if name == "" {
			c.reject(errors.New("WithTable: empty name"))
		}
	})
}

// WithSlots is the number of slots that Install seeds, 65536 by default, at most 1048576. Only
// Install and Schema read it: everything else goes by the number that the table was seeded with,
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
	// defaultLease is longer than what a healthy program and network are silent for: a garbage
	// collection, a switch of the network, the move of a virtual machine take seconds. It is
	// shorter than what people wait for before they call somebody.
	defaultLease = 30 * time.Second
	// maxLease is a little less than what the servers' timers hold, 2^31 milliseconds.
	maxLease = 24 * 24 * time.Hour
)

// WithLease is how long a session that holds locks may be silent before the server ends it, 30 s by
// default. It matters when a holder is stopped or cut off from the network without the server being
// told; a crash frees the lock at once.
//
// A healthy Lock is kept alive for as long as it is held, by a heartbeat every sixth of d; its
// Context ends a tenth of d, at most a second, before the server could end the session, counted
// from when the last answered heartbeat was sent. While the work of a Do runs, the session is the
// work's: its own statements are the only ones, and work that sends none for d loses the lock.
// Raise d where such work computes for long. LockTx changes nothing in the caller's session, whose
// own settings decide.
//
// d is at least 1 ms on PostgreSQL and 1 s on MySQL and MariaDB, where the server counts whole
// seconds, rounded up; and at most 24 days.
func WithLease(d time.Duration) Option {
	return optionFunc(func(c *config) {
		c.lease = d
		if d <= 0 || d > maxLease {
			c.reject(fmt.Errorf("WithLease(%v): the lease must be positive and at most %v", d, maxLease))
		}
	})
}

// WithFencing makes Lock.Token a fencing token. Install then creates what tokens are made of,
// besides the lock table: call it, with this option, before the first Lock, else [ErrNotInstalled].
func WithFencing() Option { return optionFunc(func(c *config) { c.fencing = true }) }

// WithLogger gives New a logger for what must not go unnoticed: that a lock was lost, that a
// connection had to be closed because its release was not confirmed, that Break has ended a session
// (warnings), and that Check refuses the server (an error). Attributes are "lock", "table",
// "session" and "error". Without it, txlock is silent. It must not be nil.
func WithLogger(logger *slog.Logger) Option {
	return optionFunc(func(c *config) {
		if logger == nil {
			c.reject(errors.New("WithLogger: nil logger"))
			return
		}
		c.logger = logger
	})
}
