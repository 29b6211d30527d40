package txlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/txlock/txlock/dialects"
)

// awaitPlace waits in a line of the process.
func (l *Locker[Tx]) awaitPlace(ctx, wait context.Context, p *place) error {
	if tracer, traces := l.config.tracer.(QueueTracer); traces && p.Waits {
		tracer.Queued(ctx)
		defer tracer.Admitted(ctx)
	}
	err := p.Wait(wait)
	if err != nil && !errors.Is(err, ErrClosed) {
		err = fmt.Errorf("%w: %w", ErrNotAcquired, err)
	}
	return err
}

// firstFor is where the first that waits here for a permit or a claim hears that one is free.
func (l *Locker[Tx]) firstFor(hash string) <-chan struct{} {
	freed := make(chan struct{}, 1)
	l.first.Store(hash, freed)
	return freed
}

// free tells the first that waits here.
func (l *Locker[Tx]) free(hash string) {
	if freed, waits := l.first.Load(hash); waits {
		select {
		case freed.(chan struct{}) <- struct{}{}:
		default:
		}
	}
}

// pause waits for so long, or until one is free. It is false when the wait is over.
func (l *Locker[Tx]) pause(ctx context.Context, longest time.Duration, freed <-chan struct{}) bool {
	select {
	case <-time.After(longest):
	case <-freed:
	case <-ctx.Done():
	case <-l.closing.Done():
	}
	return ctx.Err() == nil && l.closing.Err() == nil
}

// untilClose has Close end a wait: callers whose own contexts say nothing of it queue behind a
// batch, and a candidate may wait for ever. Close leaves the driver open until cancel is called,
// since ending a wait may take another connection.
func (l *Locker[Tx]) untilClose(ctx context.Context, done func()) (wait context.Context, cancel func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing.Err() != nil { // and Close may have waited for all already
		done()
		return nil, nil, ErrClosed
	}
	l.atServer.Add(1)
	wait, end := context.WithCancelCause(ctx)
	forget := context.AfterFunc(l.closing, func() { end(ErrClosed) })
	return wait, func() {
		forget()
		end(nil)
		done()
		l.atServer.Done()
	}, nil
}

// nameHolder adds to the error of a wait for a lock, in a new session, who holds that: another
// session of the Locker that was begun for the same rows, for who waits for himself learns it so,
// and no database sees that circle; and else, of a key, whom the server shows soon.
func (m *Mutex[Tx]) nameHolder(request dialects.Request, wait context.Context, failed error) error {
	l, err := m.locker, m.waitError(wait, failed)
	switch {
	case request.Try || !isOver(wait) || !errors.Is(err, ErrNotAcquired):
		return err
	case l.isHeldHere(request, time.Now()):
		return fmt.Errorf("%w; another call of this Locker holds it, and this one has not its context", err)
	}
	inspector, shows := l.driver.(dialects.Inspector)
	found := l.found.Load()
	waited := errors.Is(failed, ErrNotAcquired) && !errors.Is(wait.Err(), context.Canceled) // and not for a connection
	if !waited || request.Slots == 0 || !shows || found == nil || !l.naming.TryLock() {
		return err
	}
	defer l.naming.Unlock()
	brief, cancel := context.WithTimeout(context.WithoutCancel(wait), time.Second/2) // then the connection is closed
	defer cancel()
	of := dialects.Inspection{Table: *found, Brief: true}
	for _, value := range request.Values {
		of.Slots = append(of.Slots, value.Text)
	}
	entries, _ := inspector.Inspect(brief, of) // an error would say nothing of the lock
	for _, h := range entries {
		if h.Waits || h.ID == "" || h.Table != "" || h.Kind != dialects.KindRow || !slices.Contains(of.Slots, h.Value) {
			continue
		}
		process := ""
		if h.Process > 0 { // else the server does not show it
			process = fmt.Sprintf("process %d ", h.Process)
		}
		return fmt.Errorf("%w; session %s (%son %s, since %s) holds it", err, h.ID, process, cmp.Or(h.Host, "a socket"),
			h.Since.UTC().Format(time.DateTime))
	}
	return err
}

// isHeldHere tells whether a session of the Locker was begun for the rows of request before a time.
func (l *Locker[Tx]) isHeldHere(request dialects.Request, before time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.open {
		has := s.first[0]
		if s.life.Err() == nil && s.since.Before(before) && has.Table == request.Table &&
			has.Column == request.Column && slices.Equal(has.Values, request.Values) {
			return request.AnyOne == ""
		}
	}
	return false
}

// longWait is how long a call waits before the log says that the process itself holds the lock.
const longWait = 5 * time.Second

// warnOfOwn says in the log, when the wait for request lasts for long, that a call of this Locker
// has held the lock from the begin of the wait on. The one may wait for the other.
func (m *Mutex[Tx]) warnOfOwn(request dialects.Request) *time.Timer {
	l, begun := m.locker, time.Now()
	return time.AfterFunc(longWait, func() {
		if l.isHeldHere(request, begun) {
			l.config.logger.Warn("txlock: a call waits for a lock that another call of this Locker holds; if that one "+
				"waits for this one, neither ends: give it the context of that Lock or Do", "lock", m.target.String(),
				"waiting", longWait.String())
		}
	})
}

// bounded makes a call that Within bounds.
func (m *Mutex[Tx]) bounded(ctx context.Context, verb string, call func(context.Context) error) error {
	wait, cancel, err := m.limitWait(ctx)
	if err == nil {
		defer cancel()
		err = m.waitError(wait, call(wait))
	}
	return m.wrap(verb, err)
}

// waitError adds to the error of a wait what ended it: any error is ErrNotAcquired when the wait is
// over, but for those that say more.
func (m *Mutex[Tx]) waitError(wait context.Context, err error) error {
	m.locker.invalidate(err)
	certain := []error{ErrNoRow, ErrNotInstalled, ErrIsolation, ErrDeadlock, ErrLost, ErrUpgrade}
	if err == nil || isOfWork(err) || slices.ContainsFunc(certain, func(c error) bool { return errors.Is(err, c) }) {
		return err
	}
	ended := wait.Err()
	if ended == nil && isOver(wait) {
		ended = context.DeadlineExceeded
	}
	switch {
	case m.locker.closing.Err() != nil && errors.Is(context.Cause(wait), ErrClosed):
		return ErrClosed
	case ended == nil && m.locker.closing.Err() != nil && !errors.Is(err, ErrClosed):
		return fmt.Errorf("%w: %w", ErrClosed, err) // the pool is closed as well, and says so in its own words
	case ended != nil && !errors.Is(err, ErrNotAcquired):
		err = fmt.Errorf("%w: %w", ErrNotAcquired, err)
	}
	return joinErrors(err, ended)
}

// isOver tells whether a wait has ended. The server's clock, or a busy machine, may be ahead of the
// timer of its context.
func isOver(wait context.Context) bool {
	deadline, limited := wait.Deadline()
	return wait.Err() != nil || limited && !time.Now().Before(deadline)
}
