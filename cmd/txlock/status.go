package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/terminal"
	"github.com/txlock/txlock/dialects"
)

const statusHelp = `Shows which locks are held, by whom and since when, and below each who waits for it, in the order
of the queue: all locks, or those of the KEYs. A lock is shown by the key that its holder named,
or as the number of its slot. Keys may share a slot: "status KEY" then shows who holds it by
another key, and says so. Locks that are awaited come first, by the longest wait, then the others,
by how long they are held.

It is a picture of a moment and changes nothing. What PostgreSQL does not show to this role stays
empty; on MySQL and MariaDB a missing grant is an error, with exit code 77. "txlock doctor" says
which one it is. A holder "?" is one that the server did not name. The exit code is 0 whether
locks are held or not.

WAITING counts the sessions of the server that wait for a lock: not the calls that wait inside a
process. A lock that is "prepared" belongs to no session, but to the transaction with that name:
COMMIT PREPARED or ROLLBACK PREPARED ends it. MariaDB lists a lock that nobody waits for only if
its KEY is given.

--json has an object with "server", "at" and "locks", these by table and row. A lock has "table",
"column", "row", "key", "holder" (null while it passes from one to the next, or is held together),
"readers" (who share it), "permits" and "waiters". That of a semaphore has the column "semaphore",
no holder, and in "permits" the sessions that hold one, each with "permit". That of an election
has the column "election", and its holder leads. That of a claim has the column "claim", and its
holder no session, but "by" and "until". That of a prepared transaction has "prepared", its name,
and no session. A session has "id" (null when the server did not say who holds), "key",
"application", "host", "process", "user", "database", "since" (RFC 3339), "for_seconds", "idle"
(these three are null when they are not known), "statement" and "shared". What commands a terminal
is escaped. Metrics for Prometheus are in "txlock serve".`

const statusExample = `  txlock status
  txlock status --watch
  txlock status --json sku:42 | jq '.locks[].holder'`

// status is one call of the status command.
type status struct {
	*options
	keys   []string
	asJSON bool
	watch  bool
}

// redraw is the interval at which the live screen is drawn.
const redraw = 2 * time.Second

func newStatus(o *options) *cobra.Command {
	s := status{options: o}
	c := newCommand("status [flags] [KEY...]", "Show who holds locks and who waits", statusHelp, statusExample,
		func(c *cobra.Command, keys []string) error {
			if slices.Contains(keys, "") {
				return usage("a key is empty")
			}
			if s.watch && (!terminal.Is(os.Stdout) || !terminal.Is(os.Stdin)) {
				return usage("--watch needs a terminal; a program calls status --json again and again")
			}
			s.keys = keys
			return s.with(c.Context(), func(locks locker) error { return s.show(c.Context(), locks, c.OutOrStdout()) })
		})
	c.Flags().BoolVar(&s.asJSON, "json", false, "as JSON")
	c.Flags().BoolVar(&s.watch, "watch", false, "live screen, drawn every 2s, until ctrl-C")
	c.MarkFlagsMutuallyExclusive("watch", "json")
	return c
}

func (s *status) show(ctx context.Context, locks locker, out io.Writer) error {
	if s.watch {
		return s.live(ctx, locks)
	}
	holdings, err := s.inspect(ctx, "status", locks, s.keys...)
	if err != nil {
		return err
	}
	if s.asJSON {
		return s.failed(ctx, "write", writeJSON(out, s.picture(holdings)))
	}
	lines := s.lines(s.viewOf(ctx, locks, holdings), terminal.Width(os.Stdout), 0, terminal.StyleOf(os.Stdout))
	_, err = fmt.Fprintln(out, strings.Join(lines, "\n"))
	return s.failed(ctx, "write", err)
}

// lines returns the lines for people.
func (s *status) lines(v view, width, height int, style terminal.Style) []string {
	if len(v.holdings) == 0 && len(s.keys) > 0 {
		return []string{"not held: " + terminal.Clean(strings.Join(s.keys, " "))}
	}
	if len(v.holdings) == 0 {
		return []string{"no locks are held"}
	}
	return tableOf(v.holdings, v.asked).lines(width, height, style)
}

// view is the data of the lines for people.
type view struct {
	holdings []txlock.Holding
	asked    map[string][]string // KEYs of the command line by slot, as far as the slots are known
}

// viewOf finds the slots of the KEYs. Without an answer of the server they stay unknown.
func (s *status) viewOf(ctx context.Context, locks locker, holdings []txlock.Holding) view {
	v := view{holdings: holdings, asked: map[string][]string{}}
	if len(holdings) == 0 || len(s.keys) == 0 {
		return v
	}
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	slots, err := locks.slots(ctx)
	if err != nil {
		return v
	}
	for _, key := range s.keys {
		slot := strconv.Itoa(dialects.SlotOf(key, slots))
		v.asked[slot] = append(v.asked[slot], key)
	}
	return v
}
