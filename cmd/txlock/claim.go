package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/txlock/txlock"
)

const claimHelp = `Takes the claim KEY for a while, and prints its text. The claim needs no connection and no
process: whoever has the text can extend it, release it, and use it in a program (Locker.Claimed).
It ends by itself after --for, by the database's clock.

NAME says who has it: two with the same NAME are one, and both have it. To take one's own claim
again extends it. When another has it, txlock waits, in no order, with one look a second.

With --extend, the argument is the text. When the claim is over, the exit code is 76.`

const claimExample = `  held=$(txlock claim seat:12A --as cart:77 --for 10m)
  held=$(txlock claim --extend "$held" --for 10m)
  txlock release "$held"`

// claiming is what the command claim is asked to do.
type claiming struct {
	*options
	waits
	by     string
	span   time.Duration
	extend bool
}

func newClaim(o *options) *cobra.Command {
	j := claiming{options: o}
	c := newCommand("claim [flags] KEY | TEXT", "Hold a key for a while, without a process", claimHelp, claimExample,
		func(c *cobra.Command, arguments []string) error {
			switch {
			case !j.extend && j.by == "":
				return usage("say who takes it: --as NAME")
			case j.extend && (j.by != "" || j.try || c.Flags().Changed("wait")):
				return usage("--extend takes the text of a claim, and no --as, --try or --wait")
			case j.span < time.Second || j.span > 366*24*time.Hour:
				return usage("--for %v: it must be from 1s to 366 days", j.span)
			}
			if err := j.check(c); err != nil {
				return err
			}
			return j.with(c.Context(), func(locks locker) error {
				held, err := j.claim(c.Context(), locks, arguments[0])
				if err != nil {
					return err
				}
				return j.print(c, "%s\n", held)
			})
		})
	c.Args = cobra.ExactArgs(1)
	j.waits.flags(c)
	f := c.Flags()
	f.StringVar(&j.by, "as", "", "who takes it: any `NAME`")
	f.DurationVar(&j.span, "for", 0, "how long it lasts from now (required)")
	f.BoolVar(&j.extend, "extend", false, "extend the claim of TEXT instead")
	hideFlag(c, o)
	return c
}

func hideFlag(c *cobra.Command, o *options) {
	c.Flags().BoolVar(&o.hide, "hide-keys", false, "show no KEY on the server, in its views, tables and log")
}

// claim takes a claim, or extends that of a text.
func (j *claiming) claim(ctx context.Context, locks locker, argument string) (claimed, error) {
	if j.extend {
		held, err := locks.claimed(argument)
		if err != nil {
			return nil, usage("%v", err)
		}
		return held, j.ask(ctx, "extending "+held.Key(), j.server.Timeout, func(ctx context.Context) error {
			_, err := held.Extend(ctx, j.span)
			return over(held.Key(), err)
		})
	}
	held, err := j.take(ctx, locks, argument)
	if !errors.Is(err, txlock.ErrNotAcquired) || ctx.Err() != nil {
		return held, j.failed(ctx, "claiming "+argument, err)
	}
	end := &ending{code: j.conflict, own: true}
	if j.conflict != 0 {
		end.text = argument + " was not acquired"
		if other := (*txlock.HeldError)(nil); errors.As(err, &other) {
			end.text += ": " + other.Error()
		}
	}
	return nil, end
}

// take waits as --wait and --try say.
func (j *claiming) take(ctx context.Context, locks locker, key string) (held claimed, err error) {
	if !j.try {
		return locks.take(ctx, key, j.by, j.span, j.wait, false)
	}
	bounded, cancel := context.WithTimeout(ctx, j.server.Timeout)
	defer cancel()
	held, err = locks.take(bounded, key, j.by, j.span, 0, true)
	return held, overdue(ctx, bounded, j.server.Timeout, err)
}

// over says that a claim is not held any more, or that another call for it is under way.
func over(key string, err error) error {
	switch {
	case errors.Is(err, txlock.ErrClaimEnded):
		return &ending{code: exitLost, text: fmt.Sprintf("the claim %s is lost: %s", key, why(err))}
	case errors.Is(err, txlock.ErrNotAcquired) && errors.Is(err, context.DeadlineExceeded):
		return &ending{code: exitNotAcquired, text: fmt.Sprintf(
			"the claim %s could not be changed in time: another call for it is under way, or the server is silent",
			key)}
	}
	return err
}

const releaseHelp = `Gives back the claim whose text "txlock claim" has printed. When it is over, or another has taken
it since, the exit code is 76.`

func newRelease(o *options) *cobra.Command {
	c := newCommand("release [flags] TEXT", "Give a claim back", releaseHelp, `  txlock release "$held"`,
		func(c *cobra.Command, arguments []string) error {
			return o.with(c.Context(), func(locks locker) error {
				held, err := locks.claimed(arguments[0])
				if err != nil {
					return usage("%v", err)
				}
				return o.ask(c.Context(), "releasing "+held.Key(), o.server.Timeout, func(ctx context.Context) error {
					return over(held.Key(), held.Release(ctx))
				})
			})
		})
	c.Args = cobra.ExactArgs(1)
	hideFlag(c, o)
	return c
}

// claimed is the part of a txlock.Claimed that the commands use.
type claimed interface {
	fmt.Stringer
	Key() string
	Token() int64
	Extend(ctx context.Context, d time.Duration) (time.Time, error)
	Release(ctx context.Context) error
}

func (l lockerOf[Tx]) take(ctx context.Context, key, by string, d, within time.Duration, try bool) (claimed, error) {
	c := l.Claim(key)
	if within > 0 {
		c = c.Within(within)
	}
	if try {
		return present(c.TryTake(ctx, by, d))
	}
	return present(c.Take(ctx, by, d))
}

func (l lockerOf[Tx]) claimed(text string) (claimed, error) { return present(l.Claimed(text)) }

func present[C claimed](c C, err error) (claimed, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// kept is a claim that is extended as long as a command runs. It looks like a Lock. Its context
// ends when the claim is over, or when so little of it is left that the command must end now: by
// the time that a monotonic clock counts from before each call.
type kept struct {
	claimed
	ctx   context.Context
	stop  context.CancelFunc
	limit *time.Timer
}

// keep extends a claim for span, which was asked for at a time, until it is released. The context
// ends when a third of span is left.
func keep(held claimed, asked time.Time, span time.Duration) *kept {
	ctx, lose := context.WithCancelCause(context.Background())
	running, stop := context.WithCancel(ctx)
	left := func(asked time.Time) time.Duration { return time.Until(asked.Add(span - span/3)) }
	k := &kept{claimed: held, ctx: ctx, stop: stop}
	k.limit = time.AfterFunc(left(asked), func() {
		lose(fmt.Errorf("%w: it could not be extended in time", txlock.ErrLost))
	})
	go func() {
		for pause := span / 3; ; {
			select {
			case <-running.Done():
				return
			case <-time.After(pause):
			}
			now := time.Now()
			bounded, cancel := context.WithTimeout(running, span/9)
			_, err := held.Extend(bounded, span)
			cancel()
			switch {
			case err == nil:
				// The limit may end the context just now. Then the claim is lost all the same.
				k.limit.Reset(left(now))
				pause = span / 3
			case errors.Is(err, txlock.ErrClaimEnded):
				lose(err)
				return
			default:
				pause = min(span/18, time.Second)
			}
		}
	}()
	return k
}

func (k *kept) Context() context.Context { return k.ctx }
func (k *kept) Permit() int              { return 0 }

// Unlock does not wait for a call of Extend: behind the release it changes nothing.
func (k *kept) Unlock(ctx context.Context) error {
	k.stop()
	k.limit.Stop()
	if err := context.Cause(k.ctx); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	return k.Release(bounded)
}

// releaseLimit is how long the release of a claim may take.
const releaseLimit = 5 * time.Second

// runner names who takes a claim for a command. Hosts and processes may have the same names as
// others.
func runner() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("txlock run, process %d on %.200s, %s", os.Getpid(), host, rand.Text()[:8])
}
