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
	atLeast time.Duration
	prefix  string
	periods map[string]time.Duration
	logger  *slog.Logger
}

// defaultAtLeast is much longer than the difference between clocks with NTP, or between timers on
// busy machines. It is shorter than the interval of most jobs, so that their runs still spread over
// the instances.
const defaultAtLeast = 5 * time.Second

func newConfig(options []Option) (config, error) {
	c := config{
		atLeast: defaultAtLeast, periods: make(map[string]time.Duration), logger: slog.New(slog.DiscardHandler),
	}
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

// WithLockAtLeastFor sets the minimum time for which the lock of a job is kept, counted from the
// start of a run, even if the run ends earlier. The default is 5 s. Instances that fire less than
// half of d apart run a tick once. With 0 the lock is released at the end of the run, and a call
// waits for a connection without a limit: that suits jobs that must not overlap but may run on
// every instance.
func WithLockAtLeastFor(d time.Duration) Option {
	return optionFunc(func(c *config) error {
		c.atLeast = d
		if d < 0 {
			return fmt.Errorf("WithLockAtLeastFor(%v): the time must not be negative", d)
		}
		return nil
	})
}

// WithPeriod says that the job of this name is to run once in each window of length d, on whichever
// instance: a day, for a job of each day. See [txlock.Once.Per] for windows and their clock, the
// database's. The run is marked in the database before it begins, so it takes place at most once,
// also when its instance dies. The lock is held while the job runs, and WithLockAtLeastFor does not
// matter to it. The lock table must have been installed by a version that has Once.
//
// d is at least a second, and whole microseconds. Have the job fire inside its window, not at the
// edge: where all instances fire a little early, in the window before, they find that one done.
func WithPeriod(name string, d time.Duration) Option {
	return optionFunc(func(c *config) error {
		c.periods[name] = d
		if d < time.Second || d%time.Microsecond != 0 {
			return fmt.Errorf("WithPeriod(%q, %v): the period must be at least 1s, and whole microseconds", name, d)
		}
		return nil
	})
}

// WithPrefix puts prefix in front of the job's name to make the key, so that several programs can
// share a lock table.
func WithPrefix(prefix string) Option {
	return optionFunc(func(c *config) error {
		c.prefix = prefix
		return nil
	})
}

// WithLogger sets a logger for errors that gocron drops: a job was left out because the database
// did not answer, or a lock was lost. It does not log that another instance runs a job. The logger
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
