package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/child"
	"github.com/txlock/txlock/cmd/txlock/internal/terminal"
)

// onceJob is a command to run once, or once in each period.
type onceJob struct {
	*job
	per          time.Duration
	after        bool
	done, forget bool
}

const onceHelp = `Runs COMMAND unless KEY was done before, by whichever machine, and exits as COMMAND does. If it was
done before, txlock exits with 0, and says so on a terminal or with -v alone. A marker in the
database says what was done. COMMAND gets TXLOCK_KEY, and no token.

--done tells whether KEY was done, and when: if it was not, the exit code is 3. --forget deletes its
marker, and "txlock sweep" old ones.

When is KEY marked?

  before COMMAND    by default: at most once. A COMMAND that fails, or a machine
                    that dies, is not followed by another. Who comes while
                    COMMAND runs finds KEY done.
  after COMMAND     with --after: at least once. KEY is marked when COMMAND has
                    exited with 0, else the next one runs it again. Meanwhile
                    txlock holds the lock KEY, as "txlock run" does, and others
                    wait. COMMAND runs twice if the machine dies, or the lock is
                    lost, when it is done and not marked yet: so it should do no
                    harm the second time.

With --per, KEY may be done once in each window of that length, counted from 1970-01-01 00:00 UTC
by the database's clock: --per 24h is once a day. With --after a COMMAND that ends in a later
window than it began in marks neither.

With and without --per, and with each length, KEY means other work.`

const onceExample = `  txlock once migrate-2026-11 -- ./migrate.sh
  txlock once --per 24h report -- ./report.sh
  txlock once --per 1h --after --try -E 0 import -- ./import.sh`

func newOnce(o *options) *cobra.Command {
	j := onceJob{job: &job{options: o, unfenced: true}}
	c := newCommand("once [flags] KEY -- COMMAND [ARG...]", "Run a command that must not run twice", onceHelp,
		onceExample, func(c *cobra.Command, arguments []string) error {
			if err := j.read(c, arguments); err != nil {
				return err
			}
			if j.done || j.forget {
				return j.with(c.Context(), func(locks locker) error { return j.ofMarker(c, locks) })
			}
			if !j.after {
				return j.markAndRun(c.Context())
			}
			return j.with(c.Context(), func(locks locker) error {
				return j.runAndMark(c.Context(), locks)
			}, j.settings()...)
		})
	f := c.Flags()
	f.DurationVar(&j.per, "per", 0, "once in each window of this length (default: once for ever)")
	f.BoolVar(&j.after, "after", false, "mark after COMMAND: at least once (default: before, at most once)")
	f.BoolVar(&j.done, "done", false, "print when KEY was done; no COMMAND")
	f.BoolVar(&j.forget, "forget", false, "have the next one run again; no COMMAND")
	j.flags(c)
	return c
}

func (j *onceJob) read(c *cobra.Command, arguments []string) error {
	if j.done || j.forget {
		j.keys = arguments
	} else if err := j.job.read(c, arguments); err != nil {
		return err
	}
	switch {
	case len(j.keys) != 1 || j.keys[0] == "" || j.done && j.forget:
		return usage("once takes one KEY, and --done or --forget no COMMAND")
	case c.Flags().Changed("per") && j.per < time.Second:
		return usage("--per %v: it must be at least 1s", j.per)
	case j.per%time.Microsecond != 0:
		return usage("--per %v: it must be whole microseconds", j.per)
	}
	return nil
}

// ofMarker tells whether the key was done, or forgets it.
func (j *onceJob) ofMarker(c *cobra.Command, locks locker) error {
	once := locks.once(j.keys[0], j.per)
	if j.forget {
		return j.ask(c.Context(), "forgetting "+j.name(), j.server.Timeout, once.Forget)
	}
	at, done, err := j.doneAt(c.Context(), once)
	if err == nil && !done {
		return &ending{code: exitNotDone, own: true}
	}
	if err != nil {
		return err
	}
	return j.print(c, "%s\n", at.UTC().Format(time.RFC3339))
}

func (j *onceJob) doneAt(ctx context.Context, once once) (at time.Time, done bool, err error) {
	err = j.ask(ctx, "looking whether "+j.name()+" was done", j.server.Timeout, func(ctx context.Context) error {
		at, done, err = once.Done(ctx)
		return err
	})
	return at, done, err
}

// markAndRun runs the command at most once.
func (j *onceJob) markAndRun(ctx context.Context) error {
	locks, err := j.open(ctx)
	if err != nil {
		return err
	}
	once := locks.once(j.keys[0], j.per)
	ran, err := once.mark(ctx, j.wait, j.try, nil)
	if err == nil && !ran {
		_, err = j.before(ctx, once)
	}
	if errors.Is(err, txlock.ErrNotAcquired) && ctx.Err() == nil { // the lock that belongs to the marker
		key := j.keys[0]
		if j.per > 0 {
			key = j.per.String() + ":" + key
		}
		j.keys, j.asked = []string{"once:" + key}, time.Now()
		err = j.missed(ctx, locks)
	}
	leave(locks)
	switch {
	case err != nil:
		return j.failed(ctx, "marking "+j.name(), err)
	case !ran:
		return nil
	}
	signals := j.signals.take()
	if ctx.Err() != nil { // a signal came while the marker was committed
		return j.failed(ctx, j.name()+" is marked as done, but the command was not begun", ctx.Err())
	}
	result, err := child.Run(child.Command{
		Path: j.path, Args: j.command, Env: j.environment(nil), Signals: signals, Grace: j.grace,
	})
	switch {
	case err != nil:
		return &ending{
			code: child.CodeNotExecutable, own: true,
			text: fmt.Sprintf("%s is marked as done, but %s", j.name(), cannotRun(err)),
		}
	case result.Code == 0:
		return nil
	}
	return &ending{code: result.Code, own: true}
}

// errOtherWindow says that the command has ended in another window than it began in.
var errOtherWindow = errors.New("it has ended in a later window than it began in")

// runAndMark runs the command at least once. It holds the lock that "txlock run" holds, and not the
// one that belongs to the marker: nobody can be sure to keep that while the command runs, and the
// marker is written in a transaction of its own.
func (j *onceJob) runAndMark(ctx context.Context, locks locker) error {
	once := locks.once(j.keys[0], j.per)
	// This one is done in the window in which the command began.
	begin := locks.once("txlock once --after began "+j.keys[0], j.per)
	if done, err := j.before(ctx, once); done || err != nil {
		return err
	}
	j.succeeded = func() error {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), workTimeout)
		defer cancel()
		_, err := once.mark(clean, 0, false, func(ctx context.Context) error {
			if _, same, err := begin.Done(ctx); err != nil || same || j.per == 0 {
				return err
			}
			return errOtherWindow
		})
		if errors.Is(err, errOtherWindow) {
			j.say("%s is not marked as done: %v", j.name(), errOtherWindow)
			return nil
		}
		return err
	}
	j.needless = func(ctx context.Context) (bool, error) {
		if done, err := j.before(ctx, once); done || err != nil || j.per == 0 {
			return done, err
		}
		_, err := begin.mark(ctx, 0, false, nil)
		return false, j.failed(ctx, "marking the begin of "+j.name(), err)
	}
	return j.job.run(ctx, locks)
}

// before tells whether the key was done. It says when, if somebody may read it: cron mails it.
func (j *onceJob) before(ctx context.Context, once once) (done bool, err error) {
	at, done, err := j.doneAt(ctx, once)
	if done && (j.verbose || terminal.Is(os.Stderr)) {
		j.say("%s was done before: %s", j.name(), at.UTC().Format(time.RFC3339))
	}
	return done, err
}

// once is the part of a txlock.Once that the command uses.
type once interface {
	Done(ctx context.Context) (at time.Time, done bool, err error)
	Forget(ctx context.Context) error
	// mark marks it as done, after the work, if that is not nil.
	mark(ctx context.Context, within time.Duration, try bool, work func(context.Context) error) (ran bool, err error)
}

type onceOf[Tx any] struct{ *txlock.Once[Tx] }

func (l lockerOf[Tx]) once(key string, per time.Duration) once {
	o := l.Once(key)
	if per > 0 {
		o = o.Per(per)
	}
	return onceOf[Tx]{o}
}

func (o onceOf[Tx]) mark(ctx context.Context, within time.Duration, try bool, work func(context.Context) error) (
	bool, error,
) {
	perform := func(ctx context.Context, _ Tx) error {
		if work == nil {
			return nil
		}
		return work(ctx)
	}
	if try {
		return o.TryDo(ctx, perform)
	}
	if within > 0 {
		return o.Within(within).Do(ctx, perform)
	}
	return o.Do(ctx, perform)
}

const sweepHelp = `Deletes the markers of "txlock once" and of programs that are older than --older, and the rows of
claims that ended longer ago. What was swept was not done: --older must be longer than every --per,
and than a duplicate may take to come. It waits for nobody, and nobody for it.`

func newSweep(o *options) *cobra.Command {
	var older time.Duration
	c := newCommand("sweep [flags]", "Delete old markers of once", sweepHelp, "  txlock sweep --older 720h",
		func(c *cobra.Command, _ []string) error {
			if older <= 0 {
				return usage("say how old what is deleted must be: --older 720h")
			}
			return o.with(c.Context(), func(locks locker) error {
				swept, err := locks.Sweep(c.Context(), older)
				if err != nil {
					return o.failed(c.Context(), "sweep", err)
				}
				return o.print(c, "%d deleted\n", swept)
			})
		})
	c.Args = noArguments
	c.Flags().DurationVar(&older, "older", 0, "than this (required)")
	return c
}
