package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/child"
)

const runHelp = `Waits in the queue for the locks on all KEYs, runs COMMAND while it holds them, and exits as
COMMAND does.

COMMAND has txlock's input, outputs and environment, with the passwords that are there
(TXLOCK_DSN, PGPASSWORD, MYSQL_PWD), and besides

  TXLOCK_KEY     the keys, one in each line
  TXLOCK_TOKEN   the fencing token, a number larger than that of every holder
                 before. Have other systems refuse writes with a smaller one
                 than they have seen: then a command that was paused, and does
                 not know yet that it lost its lock, can do no harm there.
  TXLOCK_PERMIT  with --permits N the permit that it has, from 0 to N-1. No
                 other that runs has the same.

With --permits N, at most N at once run COMMAND under KEY, on all machines together, and the
others wait in the queue. A KEY with permits is not the lock of that KEY: neither waits for the
other.

Signals are passed on to COMMAND; ctrl-C and ctrl-\ reach it from the terminal. (In the foreground
of a terminal txlock takes each SIGINT and SIGQUIT for one of these: one that was sent to txlock
alone goes unheard. Send SIGTERM instead.)

With --claim, KEY is a claim (see "txlock claim"), for machines whose connection to the database
does not last. It is extended while COMMAND runs. When it is lost, or cannot be extended until a
third of --for is left, COMMAND is ended as when a lock is lost. A machine that dies leaves it
until --for is over. A KEY as a claim is not the lock of that KEY.

That is also how to run a COMMAND of which one must run at a time, with others standing by: start
it so on each machine. The one that holds the lock leads, TXLOCK_TOKEN is its term, and the next
takes over when it ends or dies.

When the lock is lost, because the server restarts say, COMMAND and the processes it has started
get SIGTERM, and after --grace SIGKILL. The exit code is 76 then, whatever COMMAND's was. On Linux
that is all of them that /proc shows, daemons too, but these not where txlock was begun by a
shell's exec and has other children; elsewhere COMMAND's group of processes, and on a terminal,
where COMMAND shares txlock's group, COMMAND alone.

The lock is released when COMMAND itself has ended: what it has left running in the background
goes on without it. When the server does not confirm that within some seconds, the exit code is
COMMAND's, but 76 instead of 0.

When txlock itself is killed with SIGKILL, COMMAND is killed on Linux, but not what it has started,
and not what it has become as another user (su, sudo, setpriv, chroot --userspec): rather run txlock
as that user. These, and COMMAND elsewhere, go on without the lock. A txlock that was stopped, by
SIGSTOP or ctrl-Z, for longer than the lease has lost the lock, and acts on that when it goes on.`

const runExample = `  txlock run nightly-report -- ./report.sh
  txlock run --try -E 0 nightly-report -- ./report.sh   # skip if it still runs
  txlock run --wait 30s sku:42 sku:43 -- psql -f move.sql
  txlock run deploy -- sh -c 'deploy --fence "$TXLOCK_TOKEN"'
  txlock run --claim --for 2m camera-7 -- ./record.sh
  txlock run --permits 3 encode -- ffmpeg -i in.mov out.mp4   # at most 3 at once`

func newRun(o *options) *cobra.Command {
	j := job{options: o}
	c := newCommand("run [flags] KEY... -- COMMAND [ARG...]", "Run a command while holding a lock", runHelp, runExample,
		func(c *cobra.Command, arguments []string) error {
			if err := j.read(c, arguments); err != nil {
				return err
			}
			return j.with(c.Context(), func(locks locker) error { return j.run(c.Context(), locks) }, j.settings()...)
		})
	c.Flags().BoolVar(&j.unfenced, "no-token", false, "no TXLOCK_TOKEN: for a user who may not draw tokens")
	c.Flags().IntVar(&j.permits, "permits", 0, "let `N` at once hold KEY")
	c.Flags().BoolVar(&j.claim, "claim", false, "take the claim KEY, which needs no connection, and extend it")
	c.Flags().DurationVar(&j.span, "for", 0, "with --claim: how long it lasts without an answer of the database")
	c.Flags().StringVar(&j.by, "as", "", "with --claim: who takes it: any `NAME` (default: this process)")
	j.flags(c)
	return c
}

// run waits for the lock, runs the command, and releases.
func (j *job) run(ctx context.Context, locks locker) error {
	j.warnOfNesting()
	lock, err := j.acquire(ctx, locks)
	if err != nil {
		return err
	}
	if j.needless != nil {
		if needless, err := j.needless(ctx); needless || err != nil {
			_ = lock.Unlock(ctx)
			return err
		}
	}
	signals := j.signals.take()
	if ctx.Err() != nil { // a signal came while the lock was granted
		_ = lock.Unlock(ctx)
		return j.failed(ctx, "waiting for "+j.name(), ctx.Err())
	}
	return j.guard(locks, lock, signals)
}

// warnOfNesting warns of an endless wait: a txlock above this one may hold the lock, while it waits
// for this one to end.
func (j *job) warnOfNesting() {
	above := strings.Split(os.Getenv("TXLOCK_KEY"), "\n")
	for _, key := range j.keys {
		if !j.try && j.permits == 0 && slices.Contains(above, key) {
			j.say("the txlock that runs this one (see TXLOCK_KEY) holds %s: if that is the same lock, this one waits "+
				"for itself", key)
			return
		}
	}
}

// held is a lock or a claim, while a command runs.
type held interface {
	Context() context.Context
	Token() int64
	Permit() int
	Unlock(ctx context.Context) error
}

// guard runs the command while it holds the lock.
func (j *job) guard(locks locker, lock held, signals <-chan os.Signal) error {
	result, err := child.Run(child.Command{
		Path: j.path, Args: j.command, Env: j.environment(lock), Signals: signals, Stop: lock.Context().Done(),
		Grace: j.grace,
		Stopping: func() {
			j.say("%s is lost: %s; ending the command: SIGTERM now, SIGKILL in %v", j.name(),
				why(context.Cause(lock.Context())), j.grace)
		},
	})
	go leaveAt(signals)
	var unmarked error
	if err == nil && result.Code == 0 && !result.Stopped && j.succeeded != nil {
		unmarked = j.succeeded()
	}
	ended, held := time.Now(), j.holds(locks, lock)
	released := lock.Unlock(context.Background())
	switch {
	case err != nil:
		return &ending{code: child.CodeNotExecutable, own: true, text: cannotRun(err)}
	case result.Killed:
		return &ending{code: exitLost, text: fmt.Sprintf(
			"%s was lost while the command ran, which did not end within %v and was killed", j.name(), j.grace)}
	case result.Stopped:
		return &ending{code: exitLost, text: fmt.Sprintf(
			"%s was lost while the command ran, which ended with code %d", j.name(), result.Code)}
	case held && released != nil && (j.claim && !errors.Is(released, txlock.ErrClaimEnded) ||
		time.Since(ended) >= patience): // a server that has ended the session answers sooner
		return &ending{
			code: cmp.Or(result.Code, exitLost), own: true,
			text: fmt.Sprintf("the release of %s was not confirmed, "+
				"and it may have been lost meanwhile: %s; the command ended with code %d", j.name(), why(released),
				result.Code),
		}
	case unmarked != nil:
		return j.failed(context.Background(), "the command ended with code 0, and will run again, because "+j.name()+
			" could not be marked as done", unmarked)
	case released != nil:
		return &ending{code: exitLost, text: fmt.Sprintf(
			"%s was lost before its release: %s; the command ended with code %d", j.name(), why(released), result.Code)}
	}
	if result.Code == 0 {
		return nil
	}
	return &ending{code: result.Code, own: true}
}

// holds reports whether this process still holds the lock, as far as it can tell. It locks the keys
// again: that asks no server, but notices a broken connection, for example after this process was
// stopped. It gives up while a heartbeat is unanswered.
func (j *job) holds(locks locker, lock held) bool {
	if j.claim {
		return lock.Context().Err() == nil
	}
	ctx, cancel := context.WithTimeout(lock.Context(), settling)
	defer cancel()
	again, err := locks.lock(ctx, j.wanted, 0, true)
	if err == nil {
		_ = again.Unlock(ctx)
	}
	return !errors.Is(err, txlock.ErrLost) && lock.Context().Err() == nil
}

// settling is how long after the end of the command a signal may still have been meant for it.
const settling = 200 * time.Millisecond

// leaveAt ends txlock on a signal while it waits for the release of the lock: the command has
// ended, so there is nothing to pass the signal to.
func leaveAt(signals <-chan os.Signal) {
	for settled := time.After(settling); ; {
		select {
		case <-signals:
		case <-settled:
			os.Exit(128 + number(<-signals))
		}
	}
}

// why returns the reason of a loss, without the words for the loss itself.
func why(err error) string {
	text := strings.TrimPrefix(oneLine(err.Error()), "txlock: Unlock: ")
	return strings.TrimPrefix(text, txlock.ErrLost.Error()+": ")
}

func cannotRun(err error) string {
	text := "cannot run the command: " + strings.TrimPrefix(err.Error(), "exec: ")
	if errors.Is(err, syscall.ENOEXEC) {
		text += "; is it a script without a #! line, or made for another machine?"
	}
	return text
}
