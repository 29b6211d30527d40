package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/terminal"
	"github.com/txlock/txlock/internal/holdings"
)

// The exit codes of break, and of once --done.
const (
	exitNotHeld      = 3
	exitNotDone      = 3
	exitNotConfirmed = 4
)

const breakHelp = `Ends the database session that holds the lock on KEY, after showing whose it is and asking. The
server then gives the lock to the next in the queue. What the session has not committed is undone;
its process learns that the lock is lost, and a "txlock run" there ends its command. Holders of
permits are left alone.

Only the session that was shown is ended: when it has released the lock meanwhile, nothing
happens. Of several sessions that share the lock, --session says which one to end; the others keep
the lock.

Exit codes: 0 the session was ended, 3 nobody holds the lock (any more), 4 not confirmed, 77 this
role may not end that session.`

func newBreak(o *options) *cobra.Command {
	var yes bool
	var session string
	c := newCommand("break [flags] KEY", "End the session that holds a lock", breakHelp,
		"  txlock break nightly-report\n  txlock break --yes nightly-report",
		func(c *cobra.Command, arguments []string) error {
			if len(arguments) != 1 || arguments[0] == "" {
				return usage("break takes one KEY")
			}
			if !yes && !terminal.Is(os.Stdin) {
				return usage("break asks before it ends a session, and there is no terminal: give --yes")
			}
			return o.with(c.Context(), func(locks locker) error {
				return o.breakLock(c.Context(), c.OutOrStdout(), locks, arguments[0], session, yes)
			})
		})
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.Flags().StringVar(&session, "session", "", "of those that share the lock, the one to end, by its number")
	return c
}

func (o *options) breakLock(
	ctx context.Context, out io.Writer, locks locker, key, session string, yes bool,
) error {
	h, err := o.holding(ctx, locks, key, session)
	if err != nil {
		return err
	}
	var about strings.Builder
	how := "held"
	if h.Holder.Shared {
		how = "shared"
	}
	fmt.Fprintf(&about, "%s is %s%s by %s.\n", terminal.Clean(key), how, period(*h.Holder), describe(*h.Holder))
	if others := len(h.Readers) - 1; others > 0 {
		fmt.Fprintf(&about, "%d more share it, and keep it.\n", others)
	}
	if statementOf(*h.Holder) != "" {
		about.WriteString("Statement: " + terminal.Cut(doing(*h.Holder), 200) + "\n")
	}
	for i, waiter := range h.Waiters {
		fmt.Fprintf(&about, "%d. waiting%s: %s\n", i+1, period(waiter), describe(waiter))
	}
	if shared := otherKey(h.Holder.Key, key); shared != "" {
		if yes {
			return &ending{code: exitNotHeld, text: fmt.Sprintf(
				"nobody holds %q itself, but its slot is held by one who named it %q: break that, or go without --yes",
				key, shared)}
		}
		fmt.Fprintf(&about, "Mind: its holder named it %q. Keys may share a slot; this ends the lock on that one.\n",
			terminal.Clean(shared))
	}
	if _, err := io.WriteString(out, about.String()); err != nil { // otherwise nobody can see whose session it is
		return o.failed(ctx, "write", err)
	}
	what := "session"
	if holdings.IsClaim(h) {
		what = "claim"
	}
	if !yes && !confirmed(ctx, out, "End this "+what+"? [y/N] ") {
		return o.failed(ctx, "break "+key, &ending{code: exitNotConfirmed, text: "not confirmed: nothing was ended"})
	}
	err = o.ask(ctx, "break "+key, o.server.Timeout, func(ctx context.Context) error {
		err := locks.Break(ctx, h)
		if errors.Is(err, txlock.ErrNotHeld) {
			return &ending{code: exitNotHeld, text: fmt.Sprintf(
				"%s has released %s meanwhile: nothing was ended", cmp.Or(h.Holder.By, "session "+h.Holder.ID), key)}
		}
		return err
	})
	if err != nil {
		return err
	}
	ended := "Session " + h.Holder.ID + " was ended. The next in the queue gets the lock."
	if holdings.IsClaim(h) {
		ended = "The claim of " + terminal.Clean(h.Holder.By) + " has ended."
	}
	_, err = fmt.Fprintln(out, ended)
	return o.failed(ctx, "write", err)
}

// period says how long a session has held or waited, if that is known.
func period(s txlock.Session) string {
	if s.Since.IsZero() && s.For == 0 {
		return ""
	}
	return fmt.Sprintf(" for %v", round(s.For))
}

// looks is how often break looks for the holder of a key. MariaDB may show an older state without
// the holder, or not name the holder.
const looks = 5

// holding returns the row of the key and its holder, or as that the reader with the number session.
func (o *options) holding(ctx context.Context, locks locker, key, session string) (txlock.Holding, error) {
	advice := "try again"
	for range looks {
		found, err := o.inspect(ctx, "break "+key, locks, key)
		if err != nil {
			return txlock.Holding{}, err
		}
		var claim *txlock.Holding // of that key, if nobody holds its lock
		locked := false
		for _, h := range found {
			if holdings.IsClaim(h) && session == "" {
				claim = &h
			}
			if !isLock(h) {
				continue
			}
			locked = true
			if h.Holder != nil && h.Holder.ID != "" && (session == "" || session == h.Holder.ID) {
				return h, nil
			}
			if reader, err := readerOf(h, session); err != nil || reader != nil {
				h.Holder = reader
				return h, err
			}
			if h.Holder != nil {
				advice = "try again, or as a user who may have a few more connections"
			}
		}
		if claim != nil && !locked {
			return *claim, nil
		}
		err = o.ask(ctx, "break "+key, o.server.Timeout, func(ctx context.Context) error {
			lock, err := locks.lock(ctx, wanted{keys: []string{key}}, 0, true)
			if err == nil {
				_ = lock.Unlock(ctx)
				return &ending{code: exitNotHeld, text: "nobody holds " + key}
			}
			if errors.Is(err, txlock.ErrNotAcquired) {
				return nil
			}
			return err
		})
		if err != nil {
			return txlock.Holding{}, err
		}
		select {
		case <-time.After(patience / 5):
		case <-ctx.Done():
			return txlock.Holding{}, o.failed(ctx, "break "+key, ctx.Err())
		}
	}
	return txlock.Holding{}, &ending{code: exitError, text: key + " is held, but the server does not show by whom: " +
		advice}
}

// readerOf returns the reader with the number session, or the only one, or nil.
func readerOf(h txlock.Holding, session string) (*txlock.Session, error) {
	var numbers []string
	for i, reader := range h.Readers {
		if reader.ID != "" && (reader.ID == session || session == "" && len(h.Readers) == 1) {
			return &h.Readers[i], nil
		}
		numbers = append(numbers, cmp.Or(reader.ID, unnamed))
	}
	if len(numbers) < 2 {
		return nil, nil
	}
	return nil, usage("%d sessions share the lock: say with --session which of %s to end", len(numbers),
		strings.Join(numbers, ", "))
}

// otherKey returns the key by which a session named a slot, if it certainly differs from key.
func otherKey(named, key string) string {
	if named == "" || named == "…" || holdings.Shows(named, key) {
		return ""
	}
	return named
}

// confirmed asks a question. Any answer other than yes means no.
func confirmed(ctx context.Context, out io.Writer, question string) bool {
	fmt.Fprint(out, question)
	answers := make(chan string, 1)
	go func() {
		answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		answers <- strings.ToLower(strings.TrimSpace(answer))
	}()
	select {
	case answer := <-answers:
		return answer == "y" || answer == "yes"
	case <-ctx.Done():
		fmt.Fprintln(out)
		return false
	}
}
