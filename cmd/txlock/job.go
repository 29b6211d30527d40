package main

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/child"
	"github.com/txlock/txlock/cmd/txlock/internal/dsn"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
)

// job is a command to run under locks.
type job struct {
	*options
	wanted
	waits
	command  []string
	path     string
	claim    bool
	span     time.Duration // of the claim
	by       string        // who takes it
	lease    time.Duration
	grace    time.Duration
	unfenced bool
	verbose  bool
	asked    time.Time

	// needless is asked under the lock whether the command need not run, and succeeded is called
	// under the lock when it has exited with 0. Both may be nil.
	needless  func(context.Context) (bool, error)
	succeeded func() error
}

// waits is how a command waits, and ends when that was in vain.
type waits struct {
	wait     time.Duration
	try      bool
	conflict int // exit code
}

func (w *waits) flags(c *cobra.Command) {
	f := c.Flags()
	f.DurationVar(&w.wait, "wait", 0, "wait at most so long (default: as long as it takes)")
	f.BoolVar(&w.try, "try", false, "do not wait: end when another has it")
	f.IntVarP(&w.conflict, "conflict-exit-code", "E", exitNotAcquired,
		"`code` when missed; 0: silent, unless for another key")
}

func (w *waits) check(c *cobra.Command) error {
	limited := c.Flags().Changed("wait")
	switch {
	case limited && w.try:
		return usage("--wait and --try exclude each other")
	case limited && w.wait <= 0:
		return usage("--wait %v: it must be positive; use --try in order not to wait", w.wait)
	case w.conflict < 0 || w.conflict > 255:
		return usage("--conflict-exit-code %d: it must be from 0 to 255", w.conflict)
	}
	return nil
}

// flags are those of a command that runs another.
func (j *job) flags(c *cobra.Command) {
	j.waits.flags(c)
	f := c.Flags()
	f.DurationVar(&j.lease, "lease", 0, "silence after which the server frees the lock (default 30s)")
	f.DurationVar(&j.grace, "grace", 10*time.Second, "from SIGTERM to SIGKILL when the lock is lost")
	hideFlag(c, j.options)
	f.BoolVarP(&j.verbose, "verbose", "v", false, "say whom it waits for, also without a terminal")
}

// read checks the command line, before anything is done.
func (j *job) read(c *cobra.Command, arguments []string) error {
	dash := c.ArgsLenAtDash()
	switch {
	case dash < 0 && len(arguments) >= 2:
		return usage(`put -- between the keys and the command: txlock %s %s -- %s`, c.Name(), arguments[0],
			strings.Join(arguments[1:], " "))
	case dash < 0, dash == 0, dash == len(arguments):
		return usage(`a key or the command is missing: txlock %s KEY -- COMMAND; see "txlock %[1]s --help"`, c.Name())
	}
	j.keys, j.command = arguments[:dash], arguments[dash:]
	for _, key := range j.keys {
		if key == "" {
			return usage("a key is empty")
		}
	}
	if err := j.waits.check(c); err != nil {
		return err
	}
	switch {
	case c.Flags().Changed("permits") && (j.permits < 1 || j.permits > mostPermits):
		return usage("--permits %d: it must be from 1 to %d", j.permits, mostPermits)
	case j.claim && (len(j.keys) > 1 || j.permits > 0 || j.lease > 0 || j.unfenced):
		return usage("--claim takes one KEY, and no --permits, --lease or --no-token")
	case j.claim && (j.span < 3*time.Second || j.span < 3*j.grace):
		return usage("--for %v: it must be at least 3s, and three times --grace, which is %v, so that COMMAND has "+
			"ended before the claim has", j.span, j.grace)
	case !j.claim && (c.Flags().Changed("for") || j.by != ""):
		return usage("--for and --as belong to --claim")
	case j.permits > 0 && len(j.keys) > 1:
		return usage("--permits takes one KEY")
	case c.Flags().Changed("lease") && j.lease <= 0:
		return usage("--lease %v: it must be positive", j.lease)
	case j.grace < 0:
		return usage("--grace %v: it must not be negative", j.grace)
	}
	if err := j.find(); err != nil {
		return err
	}
	if least := leastLease(j.server.System); j.lease != 0 && (j.lease < least || j.lease > mostLease) {
		return usage("--lease %v: it must be from %v to %v", j.lease, least, mostLease)
	}
	path, code, err := child.Find(j.command[0])
	j.path = path
	if err != nil {
		return &ending{code: code, text: cannotRun(err)}
	}
	return nil
}

// mostPermits is what a semaphore may have.
const mostPermits = 1000

// mostLease is the longest lease that the servers' timers support.
const mostLease = 24 * 24 * time.Hour

// leastLease is the resolution of a system's timers.
func leastLease(system dsn.System) time.Duration {
	if system == dsn.Postgres {
		return (*postgres.Driver)(nil).Info().MinLease
	}
	return (*mysql.Driver)(nil).Info().MinLease
}

func (j *job) settings() (settings []txlock.Option) {
	if j.lease > 0 {
		settings = append(settings, txlock.WithLease(j.lease))
	}
	if !j.unfenced {
		settings = append(settings, txlock.WithFencing())
	}
	return settings
}

// environment returns the environment of the command, without the key, token and permit of a txlock
// above this one.
func (j *job) environment(lock held) []string {
	var environment []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if name != "TXLOCK_KEY" && name != "TXLOCK_TOKEN" && name != "TXLOCK_PERMIT" {
			environment = append(environment, entry)
		}
	}
	environment = append(environment, "TXLOCK_KEY="+strings.Join(j.keys, "\n"))
	if lock == nil {
		return environment
	}
	if !j.unfenced {
		environment = append(environment, "TXLOCK_TOKEN="+strconv.FormatInt(lock.Token(), 10))
	}
	if j.permits > 0 {
		environment = append(environment, "TXLOCK_PERMIT="+strconv.Itoa(lock.Permit()))
	}
	return environment
}

// name returns the keys, for messages.
func (j *job) name() string { return strings.Join(j.keys, " ") }
