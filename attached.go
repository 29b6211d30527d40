package txlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/txlock/txlock/dialects"
)

// attached is what a kind sends along with a Do: behind its lock, and with its COMMIT. In the work
// of another Do it stands in the savepoint of that Do instead.
type attached struct {
	look dialects.Query // reads
	// judge says whether the work is to run, by the answer to look. Its error is that of the Do.
	judge func(answer []string) error
	last  func() []dialects.Query // after the work, unless that failed; nil: nothing is
}

// attach is work with what is attached.
func (m *Mutex[Tx]) attach(g grant[Tx], work func(context.Context, Tx) error) func(context.Context, Tx) error {
	a, nested := m.attached, g.turn != nil
	return func(ctx context.Context, tx Tx) error {
		answer := g.Answer
		var err error
		if nested {
			if answer, err = m.locker.askInWork(ctx, a.look); err != nil {
				return err
			}
		}
		if err = a.judge(answer); err == nil {
			err = work(ctx, tx)
		}
		if err != nil || a.last == nil {
			return err
		}
		if !nested {
			g.last = a.last()
			return nil
		}
		for _, q := range a.last() {
			if _, err = m.locker.askInWork(ctx, q); err != nil {
				break
			}
		}
		return err
	}
}

// inWork tells whether ctx is that of the work of a Do. That of a session that a Lock began is
// ErrInsideLock.
func (l *Locker[Tx]) inWork(ctx context.Context) (bool, error) {
	s, of := l.carried(ctx)
	if s == nil || !of.Open() {
		return false, nil
	}
	if s.ctx == nil {
		return false, ErrInsideLock
	}
	return true, nil
}

// ask runs a statement of a kind by itself, on a connection of the pool.
func (l *Locker[Tx]) ask(ctx context.Context, q dialects.Query) (lines []string, err error) {
	lines, err = l.driver.Run(ctx, q)
	if ended := ctx.Err(); err != nil && ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w (%w)", err, ended)
	}
	l.invalidate(err)
	return lines, err
}

// askInWork runs a statement of a kind in the work of a Do, whose context ctx is.
func (l *Locker[Tx]) askInWork(ctx context.Context, q dialects.Query) (lines []string, err error) {
	s, of := l.carried(ctx)
	turn, err := s.turns.Take(ctx, of.Scope()) // a goroutine that the work has left behind may have it
	if err != nil {
		return nil, err
	}
	defer turn.Give()
	lines, err = s.inner.Run(ctx, q)
	return lines, s.told(err)
}
