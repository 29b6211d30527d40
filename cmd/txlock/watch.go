package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/terminal"
)

// glance is one answer of the server, or why there was none.
type glance struct {
	view
	at  time.Time
	err error
}

// hopeless reports whether asking again makes no sense, because the server has never answered this.
func (g glance) hopeless() bool {
	return g.at.IsZero() && g.err != nil && (errors.Is(g.err, txlock.ErrNotInstalled) || refused(g.err))
}

// live shows the status on its own screen until the user quits. If the server does not answer, the
// screen says so, and live asks again.
func (s *status) live(ctx context.Context, locks locker) error {
	style := terminal.StyleOf(os.Stdout)
	screen, err := terminal.Open(os.Stdin, os.Stdout)
	if err != nil {
		return s.failed(ctx, "status", err)
	}
	defer screen.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	glances := make(chan glance)
	go s.look(ctx, locks, glances)
	last := glance{}
	for {
		screen.Draw(s.screenful(screen, last, style))
		select {
		case next := <-glances:
			if next.err != nil {
				next.view, next.at = last.view, last.at
			}
			if last = next; last.hopeless() {
				return s.failed(ctx, "status", last.err)
			}
		case <-screen.Resized:
		case <-screen.Quit:
			return nil
		case <-ctx.Done():
			return s.failed(ctx, "status", ctx.Err())
		}
	}
}

// look asks the server repeatedly.
func (s *status) look(ctx context.Context, locks locker, glances chan<- glance) {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		bounded, cancel := context.WithTimeout(ctx, s.server.Timeout)
		holdings, err := locks.Inspect(bounded, s.keys...)
		err = overdue(ctx, bounded, s.server.Timeout, err)
		cancel()
		at := time.Now()
		select {
		case glances <- glance{s.viewOf(ctx, locks, holdings), at, err}:
		case <-ctx.Done():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// screenful returns the lines of the screen.
func (s *status) screenful(screen *terminal.Screen, g glance, style terminal.Style) []string {
	width, height := screen.Size()
	title := fmt.Sprintf("txlock status every %v, q quits: %s", s.every, s.server.Address)
	if !g.at.IsZero() {
		title = g.at.Format(time.TimeOnly) + "  " + title
	}
	lines := []string{style.In(terminal.Bold, terminal.Cut(terminal.Clean(title), width))}
	if g.err != nil {
		trouble := terminal.Clean("cannot look, trying again: " + s.server.Redact(g.err.Error()))
		lines = append(lines, style.In(terminal.Red, terminal.Cut(trouble, width)))
	}
	lines = append(lines, "")
	if g.at.IsZero() {
		return append(lines, "…")
	}
	return append(lines, s.lines(g.view, width, max(1, height-len(lines)), style)...)
}
