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
	err     error // the first bad option
}

func newConfig(options []Option) config {
	c := config{table: "txlock_slots", logger: slog.New(slog.DiscardHandler)}
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

// WithTable names the lock table, "txlock_slots" by default: name or schema.name, spelled as in SQL. A part that SQL would
// need quotes for may be quoted, with " on PostgreSQL and ` on MySQL and MariaDB. All clients must name the same table.
func WithTable(name string) Option {
	return optionFunc(func(c *config) {
		c.table = name
		if name == "" {
			c.reject(errors.New("WithTable: empty name"))
		}
	})
}

// WithSlots is the number of slots that Install seeds, 65536 by default, at most 1048576. Only Install and Schema read
// it: everything else goes by the number that the table was seeded with, and Install refuses a table that was seeded with
// another.
func WithSlots(n int) Option {
	return optionFunc(func(c *config) {
		c.slots = n
		if n < 1 || n > dialects.MaxSlots {
			c.reject(fmt.Errorf("WithSlots(%d): the number must be from 1 to %d", n, dialects.MaxSlots))
		}
	})
}

// WithLease will bound how long the server keeps the session of a holder that is silent. It is checked and not yet
// enforced: in this version a silent holder keeps its lock until the server notices that its connection is gone.
// d must be positive.
func WithLease(d time.Duration) Option {
	return optionFunc(func(c *config) {
		c.lease = d
		if d <= 0 {
			c.reject(fmt.Errorf("WithLease(%v): the lease must be positive", d))
		}
	})
}

// WithFencing will make Lock.Token a fencing token. In this version it changes nothing, and Token returns 0.
func WithFencing() Option { return optionFunc(func(c *config) { c.fencing = true }) }

// WithLogger gives New a logger for what no caller is there to be told: a connection that had to be closed because its
// release was not confirmed. Without it, txlock is silent. It must not be nil.
func WithLogger(logger *slog.Logger) Option {
	return optionFunc(func(c *config) {
		if logger == nil {
			c.reject(errors.New("WithLogger: nil logger"))
			return
		}
		c.logger = logger
	})
}
