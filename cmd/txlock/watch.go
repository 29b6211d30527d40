package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/terminal"
)

// live shows the status on the terminal's second screen until ctrl-C. If the server does not
// answer, the screen says so, and live asks again.
func (s *status) live(ctx context.Context, locks locker) error {
	// no line wrapping: terminals disagree on the width of some characters
	fmt.Print("\x1b[?1049h\x1b[?25l\x1b[?7l")
	defer fmt.Print("\x1b[?7h\x1b[?25h\x1b[?1049l")
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	var seen view
	var at time.Time // of the last answer
	for {
		bounded, cancel := context.WithTimeout(ctx, s.server.Timeout)
		found, err := locks.Inspect(bounded, s.keys...)
		err = overdue(ctx, bounded, s.server.Timeout, err)
		cancel()
		if err == nil {
			seen, at = s.viewOf(ctx, locks, found), time.Now()
		} else if at.IsZero() && (errors.Is(err, txlock.ErrNotInstalled) || refused(err)) {
			return s.failed(ctx, "status", err) // to ask again makes no sense
		}
		s.draw(seen, at, err)
		select {
		case <-tick.C:
		case <-ctx.Done():
			if s.signals.first.Load() == int32(syscall.SIGINT) {
				return nil
			}
			return s.failed(ctx, "status", ctx.Err())
		}
	}
}

// draw overwrites the old lines, because clearing them would flicker.
func (s *status) draw(seen view, at time.Time, trouble error) {
	width, height := terminal.Size(os.Stdout)
	if width == 0 || height == 0 {
		width, height = 80, 24
	}
	style := terminal.StyleOf(os.Stdout)
	title := fmt.Sprintf("txlock status every %v, ctrl-C quits: %s", redraw, s.server.Address)
	if !at.IsZero() {
		title = at.Format(time.TimeOnly) + "  " + title
	}
	lines := []string{style.In(terminal.Bold, terminal.Cut(terminal.Clean(title), width))}
	if trouble != nil {
		text := terminal.Clean("cannot look, trying again: " + s.server.Redact(trouble.Error()))
		lines = append(lines, style.In(terminal.Red, terminal.Cut(text, width)))
	}
	if lines = append(lines, ""); at.IsZero() {
		lines = append(lines, "…")
	} else {
		lines = append(lines, s.lines(seen, width, max(1, height-len(lines)), style)...)
	}
	fmt.Print("\x1b[H" + strings.Join(lines[:min(len(lines), height)], "\x1b[K\n") + "\x1b[K\x1b[J")
}
