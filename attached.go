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

// attach is work with what is attached, in the session of its Do.
func (m *Mutex[Tx]) attach(g grant[Tx], work func(context.Context, Tx) error) func(context.Context, Tx) error {
	return func(ctx context.Context, tx Tx) error {
		err := m.attached.judge(g.Answer)
		if err == nil {
			err = work(ctx, tx)
		}
		if err == nil && m.attached.last != nil {
			g.last = m.attached.last()
		}
		return err
	}
}

// attachNested is work with what is attached, in the savepoint of its Do.
func (m *Mutex[Tx]) attachNested(work func(context.Context, Tx) error) func(context.Context, Tx) error {
	return func(ctx context.Context, tx Tx) error {
		answer, err := m.locker.askInWork(ctx, m.attached.look)
		if err == nil {
			err = m.attached.judge(answer)
		}
		if err == nil {
			err = work(ctx, tx)
		}
		if err != nil || m.attached.last == nil {
			return err
		}
		for _, q := range m.attached.last() {
			if _, err = m.locker.askInWork(ctx, q); err != nil {
				break
			}
		}
		return err
	}
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
	err = l.inSession(ctx, func(s dialects.Session[Tx]) (err error) {
		lines, err = s.Run(ctx, q)
		return err
	})
	return lines, err
}

// inSession does what sends statements in the work of a Do, whose context ctx is.
func (l *Locker[Tx]) inSession(ctx context.Context, do func(dialects.Session[Tx]) error) error {
	s, of := l.carried(ctx)
	if s == nil {
		return errOutlived
	}
	return s.call(ctx, of, func() error { return s.told(do(s.inner)) })
}
