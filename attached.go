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
	last  func() dialects.Query // after the work, unless that failed; nil: nothing is
}

// attach is work with what is attached. What the session of a Do has asked, and what it sends with
// its COMMIT, the work of a nested Do, which has no session of its own, asks and sends itself.
func (m *Mutex[Tx]) attach(s *session[Tx], answer []string, work func(context.Context, Tx) error,
) func(context.Context, Tx) error {
	return func(ctx context.Context, tx Tx) (err error) {
		if s == nil {
			answer, err = m.locker.askInWork(ctx, m.attached.look)
		}
		if err == nil {
			err = m.attached.judge(answer)
		}
		if err == nil {
			err = work(ctx, tx)
		}
		switch {
		case err != nil || m.attached.last == nil:
		case s != nil:
			s.last = append(s.last, m.attached.last())
		default:
			_, err = m.locker.askInWork(ctx, m.attached.last())
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
