package txlock

import (
	"cmp"
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
			c.need(false, "nil option")
		} else {
			option.apply(&c)
		}
	}
	return c
}

func (c *config) need(good bool, format string, args ...any) {
	if !good && c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithTable names the lock table, "txlock_slots" by default: name or schema.name, as in SQL. All
// clients must name the same table, with its schema where they differ in search_path.
func WithTable(name string) Option {
	return optionFunc(func(c *config) {
		c.table = name
		c.need(name != "", "WithTable: empty name")
	})
}

// WithSlots is the number of slots that Install seeds, 65536 by default, at most 1048576. Only
// Install and Schema read it.
func WithSlots(n int) Option {
	return optionFunc(func(c *config) {
		c.slots = n
		c.need(n >= 1 && n <= dialects.MaxSlots, "WithSlots(%d): the number must be from 1 to %d", n, dialects.MaxSlots)
	})
}

const (
	// defaultLease is longer than a healthy program or network is silent, for the move of a virtual
	// machine say, and shorter than people wait before they call somebody.
	defaultLease = 30 * time.Second
	maxLease     = 24 * 24 * time.Hour // the servers' timers hold 2^31 ms
)

// WithLease is how long a holder may be silent, stopped or cut off, before the server ends its
// session: 30 s by default, at most 24 days, at least 1 ms on PostgreSQL, and 1 s on MySQL and
// MariaDB, rounded up to seconds. A heartbeat, each sixth of d or 20 s at least, keeps a Lock
// alive, whose Context ends a tenth of d, at most a second, before the session can. Work of a Do
// that sends no statement for d loses the lock.
func WithLease(d time.Duration) Option {
	return optionFunc(func(c *config) {
		c.lease = d
		c.need(d > 0 && d <= maxLease, "WithLease(%v): the lease must be positive and at most %v", d, maxLease)
	})
}

// WithFencing makes Lock.Token a fencing token.
func WithFencing() Option { return optionFunc(func(c *config) { c.fencing = true }) }

// WithQueue lets at most n sessions of this Locker wait for or hold the same rows at the server; by
// default a quarter of the pool's connections, at least 2. Other callers wait in the process, in
// order, without a connection; with n above two, some may overtake each other. A Try misses when
// somebody waits in the process, or all n are in use. Calls that join a session, LockTx and Shared
// pass by.
func WithQueue(n int) Option {
	return optionFunc(func(c *config) {
		c.queue = n
		c.need(n >= 1, "WithQueue(%d): at least 1 session must be allowed", n)
	})
}

// WithHiddenKeys keeps keys, and names of semaphores and elections, from the server's views,
// statements, tables and log. Clients with and without it exclude each other. docs/inspect.md says
// what it does not hide.
func WithHiddenKeys() Option { return optionFunc(func(c *config) { c.hidden = true }) }

// WithLogger gets warnings and errors: docs/operations.md has them all.
func WithLogger(logger *slog.Logger) Option {
	return optionFunc(func(c *config) {
		c.need(logger != nil, "WithLogger: nil logger")
		c.logger = cmp.Or(logger, c.logger)
	})
}

// WithTracer tells tracer of every call that locks.
func WithTracer(tracer Tracer) Option {
	return optionFunc(func(c *config) {
		c.need(tracer != nil, "WithTracer: nil tracer")
		c.tracer = tracer
	})
}
