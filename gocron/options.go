package txlockgocron

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Option changes what New returns.
type Option interface{ apply(*config) error }

type config struct {
	atLeast       time.Duration
	prefix        string
	table, column string // "" for slots
	logger        *slog.Logger
}

// defaultAtLeast is much longer than what clocks that are kept by NTP, and timers on a busy
// machine, are apart, and shorter than the interval of most jobs, so that these are still spread
// over the instances.
const defaultAtLeast = 5 * time.Second

func newConfig(options []Option) (config, error) {
	c := config{atLeast: defaultAtLeast, logger: slog.New(slog.DiscardHandler)}
	for _, option := range options {
		if option == nil {
			return c, errors.New("nil option")
		}
		if err := option.apply(&c); err != nil {
			return c, err
		}
	}
	return c, nil
}

type optionFunc func(*config) error

func (f optionFunc) apply(c *config) error { return f(c) }

// WithLockAtLeastFor is the minimum time, counted from the beginning of a run, for which the lock
// of a job is kept from other instances, 5 s by default, even if the run is over before. Instances
// that fire less than half of d apart run a tick once. With 0 the lock is released when the run is
// over, and a call waits for a connection as long as it takes: right for jobs that must not overlap
// and may run on every instance.
func WithLockAtLeastFor(d time.Duration) Option {
	return optionFunc(func(c *config) error {
		c.atLeast = d
		if d < 0 {
			return fmt.Errorf("WithLockAtLeastFor(%v): the time must not be negative", d)
		}
		return nil
	})
}

// WithPrefix puts prefix in front of the job's name in what is locked, so that several programs can
// share a lock table.
func WithPrefix(prefix string) Option {
	return optionFunc(func(c *config) error {
		c.prefix = prefix
		return nil
	})
}

// WithRows locks rows of a table of yours instead of slots, see [txlock.Locker.Rows]: the row whose
// column is the job's name, behind the prefix. Each job needs its row; without it the job does not
// run, and Lock returns [txlock.ErrNoRow].
func WithRows(table, column string) Option {
	return optionFunc(func(c *config) error {
		c.table, c.column = table, column
		if table == "" || column == "" {
			return errors.New("WithRows: empty name")
		}
		return nil
	})
}

// WithLogger gives New a logger for what gocron drops: that a job was left out because the database
// could not be asked, and that a lock was lost. That another instance runs a job is not logged. It
// must not be nil.
func WithLogger(logger *slog.Logger) Option {
	return optionFunc(func(c *config) error {
		if logger == nil {
			return errors.New("WithLogger: nil logger")
		}
		c.logger = logger
		return nil
	})
}
