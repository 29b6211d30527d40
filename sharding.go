package txlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
	"github.com/txlock/txlock/internal/locktable"
)

// find looks the lock table up, once. That takes a connection for a moment, also where the caller
// is connected, with one. From then on the table is called by its full name: what changes the
// search_path or the default database of a connection, as work may, moves nobody to the locks of
// another table.
func (l *Locker[Tx]) find(ctx context.Context, connected bool) (*dialects.LockTable, error) {
	if err := l.ready(); err != nil {
		return nil, err
	}
	if found := l.found.Load(); found != nil {
		return found, nil
	}
	if connected { // in a full pool it might wait for itself
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, 3*time.Second, errFullPool)
		defer cancel()
	}
	select { // a few look at once, the others soon have their answer
	case l.looking <- struct{}{}:
		defer func() { <-l.looking }()
	case <-time.After(time.Second): // or look themselves: the server may be silent
	case <-ctx.Done():
	}
	if found := l.found.Load(); found != nil {
		return found, nil
	}
	found, err := locktable.Find(ctx, l.driver, l.config.table)
	if err != nil {
		ended := ctx.Err()
		if cause := context.Cause(ctx); cause == errFullPool { // that of a caller's may be another's loss
			ended = cause
		}
		return nil, joinErrors(err, ended)
	}
	l.found.Store(&found)
	return &found, nil
}

// invalidate has the lock table looked up anew after err, if that says that there is none: it may
// be installed anew, with another number of slots, or in another schema. No call is tried again for
// that.
func (l *Locker[Tx]) invalidate(err error) {
	if errors.Is(err, ErrNotInstalled) {
		l.found.Store(nil)
	}
}

var errFullPool = errors.New("it was not looked up yet, and the caller's transaction keeps the pool from it: call " +
	"Install or Check at start, and take a permit")

// ask runs a statement of a kind by itself, on a connection of the pool.
func (l *Locker[Tx]) ask(ctx context.Context, q dialects.Query) (lines []string, err error) {
	if lines, err = l.driver.Run(ctx, q); err != nil {
		err = joinErrors(err, ctx.Err())
	}
	l.invalidate(err)
	return lines, err
}

// askKind is ask, of what the lock table has beside it.
func (l *Locker[Tx]) askKind(ctx context.Context, query func(dialects.Kinds) dialects.Query) ([]string, error) {
	found, err := l.find(ctx, false)
	if err != nil {
		return nil, err
	}
	return l.ask(ctx, query(found.Kinds))
}

// shownName is what a session shows of the key of a semaphore.
func (c *config) shownName(key string) string {
	if c.hidden {
		return label.Hidden(label.Hash(key))
	}
	return key
}

// storedName is the name of a semaphore or an election, as its table has it.
func (c *config) storedName(name string) string {
	if c.hidden {
		return ""
	}
	return label.ASCII(name)
}

// nameOf prints keys for errors.
func nameOf(keys []string) string {
	const shown = 3
	var texts []string
	for _, key := range keys[:min(len(keys), shown)] {
		texts = append(texts, fmt.Sprintf("%.64q", key))
	}
	if len(keys) > shown {
		texts = append(texts, fmt.Sprintf("and %d more", len(keys)-shown))
	}
	return strings.Join(texts, ", ")
}

func nameOfRows(table, column string, values ...string) string {
	return fmt.Sprintf("%.64s.%.64s %s", table, column, nameOf(values))
}
