package txlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/queue"
)

type (
	lines = queue.Lines[lineName]
	place = queue.Place[lineName]
)

// lineName names a set of rows, by their values with NUL between them. Sets of binary values that
// have one themselves may share a line: they wait longer, and nothing else.
type lineName struct{ table, column, values string }

func lineOf(request dialects.Request) lineName {
	name := lineName{request.Table, request.Column, request.Values[0].Text}
	for _, value := range request.Values[1:] {
		name.values += "\x00" + value.Text
	}
	return name
}

// newLines is called once, at the first call that needs the size of the pool.
func (l *Locker[Tx]) newLines() *lines {
	limit := l.config.queue
	if limit == 0 {
		limit = max(l.info().PoolSize/4, 2)
	}
	return queue.New[lineName](l.closing, limit)
}

// awaitPlace waits in a line of the process. A panic of the Tracer leaves nobody in line, and no
// session with nobody.
func (l *Locker[Tx]) awaitPlace(ctx, wait context.Context, p *place) (err error) {
	goesOn := false
	defer func() {
		if !goesOn {
			p.Leave()
		}
	}()
	tracer, traces := l.config.tracer.(QueueTracer)
	traces = traces && p.Waits()
	if traces {
		tracer.Queued(ctx)
	}
	err = p.Wait(wait)
	if traces {
		tracer.Admitted(ctx)
	}
	if err != nil && !errors.Is(err, ErrClosed) {
		err = fmt.Errorf("%w: %w", ErrNotAcquired, err)
	}
	goesOn = err == nil
	return err
}

// awaitCandidacy lets one candidate of each election, and one of those who wait for a semaphore, go
// on. It keeps its place as long as it leads, or waits, whatever WithQueue says.
func (l *Locker[Tx]) awaitCandidacy(ctx, wait context.Context, name lineName) (*place, error) {
	p := l.candidates.Enter(name, false)
	return p, l.awaitPlace(ctx, wait, p)
}

// candidacy names the line of an election or a semaphore.
func (l *Locker[Tx]) candidacy(column, hash string) lineName {
	return lineName{l.config.table, column, hash}
}

// queueAndBegin waits in the process until the rows of request may be asked for, and asks for them.
// Who shares, or tries for a permit, does not wait there.
func (m *Mutex[Tx]) queueAndBegin(ctx, wait context.Context, request dialects.Request) (g grant[Tx], err error) {
	l := m.locker
	var p *place
	if !request.Shared && m.permit == nil {
		p = l.lines().Enter(lineOf(request), request.Try)
		switch {
		case p == nil:
			return g, fmt.Errorf("%w: other callers of this process hold it or wait for it", ErrNotAcquired)
		case p.Crowded && !request.Try:
			defer l.warnOfOwn(&m.target, request)()
			if err = l.awaitPlace(ctx, wait, p); err != nil {
				return g, err
			}
		}
		if request.Try || request.Work.IsExec() {
			p.Granted()
		}
	}
	return l.begin(ctx, wait, &m.target, request, p)
}

// untilClose runs a wait that Close ends: callers whose own contexts say nothing of it queue behind
// a batch, and a candidate may wait for ever. Close leaves the driver open until then, since
// ending a wait may take another connection.
func (l *Locker[Tx]) untilClose(ctx context.Context, acquire func(wait context.Context) error) error {
	l.mu.Lock()
	closed := l.closed.Load() // and Close may have waited for all already
	if !closed {
		l.atServer.Add(1)
	}
	l.mu.Unlock()
	if closed {
		return ErrClosed
	}
	defer l.atServer.Done()
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.closing, cancel)()
	err := acquire(wait)
	if err != nil && l.closing.Err() != nil {
		err = ErrClosed
	}
	return err
}

// heldHere adds to the error of a wait in a new session that has ended who holds the lock: another
// session of the Locker that was begun for the same rows, for who waits for himself learns it so,
// and no database sees that circle; and else, of a key, whom the server shows.
func (l *Locker[Tx]) heldHere(request dialects.Request, wait context.Context, err error) error {
	switch {
	case request.Try || !isOver(wait) || !errors.Is(err, ErrNotAcquired):
		return err
	case l.isHeldHere(request, time.Time{}):
		return fmt.Errorf("%w; another call of this Locker holds it, and this one has not its context", err)
	case errors.Is(wait.Err(), context.Canceled) || request.Slots == 0 || !l.naming.TryLock():
		return err
	}
	defer l.naming.Unlock()
	if holder := l.holderOf(context.WithoutCancel(wait), request); holder != "" {
		err = fmt.Errorf("%w; %s holds it", err, holder)
	}
	return err
}

// holderOf is who has the first of some keys that is held, as far as the server shows it soon.
func (l *Locker[Tx]) holderOf(ctx context.Context, request dialects.Request) string {
	inspector, shows := l.driver.(dialects.Inspector)
	found := l.found.Load()
	if !shows || found == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second) // at whose end the connection would be closed
	defer cancel()
	of := dialects.Inspection{Table: *found, Brief: true}
	for _, value := range request.Values {
		of.Slots = append(of.Slots, value.Text)
	}
	entries, _ := inspector.Inspect(ctx, of) // an error would say nothing of the lock
	for _, h := range entries {
		if !h.Waits && h.ID != "" && h.Table == "" && h.Kind == dialects.KindRow && slices.Contains(of.Slots, h.Value) {
			process := ""
			if h.Process > 0 { // else the server does not show it
				process = fmt.Sprintf("process %d ", h.Process)
			}
			return fmt.Sprintf("session %s (%son %s, since %s)", h.ID, process, cmp.Or(h.Host, "a socket"),
				h.Since.UTC().Format(time.DateTime))
		}
	}
	return ""
}

// isHeldHere tells whether a session of the Locker was begun for the rows of request: if before is
// not zero, before that time.
func (l *Locker[Tx]) isHeldHere(request dialects.Request, before time.Time) bool {
	if len(request.Values) == 0 || request.AnyOne != "" {
		return false
	}
	wanted := lineOf(request)
	return slices.ContainsFunc(l.sessions.All(), func(s *session[Tx]) bool {
		return s.life.Err() == nil && (before.IsZero() || s.since.Before(before)) &&
			lineOf(s.first.Request) == wanted
	})
}

// longWait is how long a call waits before the log says that the process itself holds the lock.
const longWait = 5 * time.Second

// warnOfOwn says in the log, while the wait for request lasts for long, that a call of this Locker
// has held the lock from the begin of the wait on. The one may wait for the other.
func (l *Locker[Tx]) warnOfOwn(of fmt.Stringer, request dialects.Request) (over func() bool) {
	begun := time.Now()
	return time.AfterFunc(longWait, func() {
		if l.isHeldHere(request, begun) {
			l.config.logger.Warn("txlock: a call waits for a lock that another call of this Locker holds; if that one "+
				"waits for this one, neither ends: give it the context of that Lock or Do", "lock", of.String(),
				"waiting", longWait.String())
		}
	}).Stop
}
