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

// ready is an error for what is wrong without a look at the database.
func (m *Mutex[Tx]) ready() error {
	if err := m.locker.ready(); err != nil {
		return err
	}
	return m.err
}

// limitWait checks what can be checked without the database, and bounds the wait by Within.
func (m *Mutex[Tx]) limitWait(ctx context.Context) (wait context.Context, cancel context.CancelFunc, err error) {
	if err := m.ready(); err != nil {
		return nil, nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrNotAcquired, err)
	}
	if m.within == 0 {
		return ctx, nothing, nil
	}
	wait, cancel = context.WithTimeout(ctx, m.within)
	return wait, cancel, nil
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

// acquire locks the rows of m: in the session of a Lock that ctx carries, or for a Lock in the work
// of a Do in its session, else in a new one. Wait is ctx, or one that also ends the wait.
func (m *Mutex[Tx]) acquire(ctx, wait context.Context, try, work bool) (g grant[Tx], err error) {
	if m.untilClose {
		once := *m
		once.untilClose = false
		err = m.locker.untilClose(wait, func(wait context.Context) (err error) {
			g, err = once.acquire(ctx, wait, try, work)
			return err
		})
		return g, err
	}
	wait, cancel, err := m.limitWait(wait)
	if err != nil {
		return g, err
	}
	defer cancel()
	if m.permit != nil {
		g, err = m.permit.acquire(m, ctx, wait, try, work)
		return g, m.waitError(ctx, wait, err)
	}
	return m.acquireRows(ctx, wait, try, work)
}

// acquireRows is acquire, with a bounded wait.
func (m *Mutex[Tx]) acquireRows(ctx, wait context.Context, try, work bool) (g grant[Tx], err error) {
	if s, of := m.locker.carried(ctx); s != nil && s.enter() {
		return m.join(ctx, wait, s, of, try)
	}
	request, err := m.sessionRequest(wait, try, work, false)
	if err == nil {
		if !try {
			defer m.locker.warnOfOwn(&m.target, request)()
		}
		g, err = m.queueAndBegin(ctx, wait, request)
	}
	if err != nil {
		m.locker.invalidate(err)
		err = m.locker.heldHere(request, wait, m.waitError(ctx, wait, err))
	}
	return g, err
}

// sessionRequest is request for a session. The table of tokens is found for work, too: a lock in it
// will ask for one, and then has a connection already.
func (m *Mutex[Tx]) sessionRequest(ctx context.Context, try, work, connected bool) (dialects.Request, error) {
	request, err := m.request(ctx, try, connected)
	request.Lease = m.locker.config.lease
	switch {
	case !work:
	case m.statements != nil:
		request.Work = m.statements
	case m.attached != nil && !connected:
		request.Work = &dialects.Work{Look: &m.attached.look}
	default:
		request.Work = &anyWork
	}
	if err != nil || !m.locker.config.fencing || request.Fence != "" {
		return request, err
	}
	found, err := m.locker.find(ctx, connected)
	if err == nil && !work {
		request.Fence = found.Name
	}
	return request, err
}

// waitError adds to the error of a wait what ended it: any error is ErrNotAcquired when ctx or
// Within has ended the wait, but for those that say more.
func (m *Mutex[Tx]) waitError(ctx, wait context.Context, err error) error {
	if err == nil {
		return nil
	}
	if isOfWork(err) {
		return err
	}
	for _, certain := range []error{
		ErrNoRow, ErrNotInstalled, ErrIsolation, ErrDeadlock, ErrLost, ErrUpgrade,
	} {
		if errors.Is(err, certain) {
			return err
		}
	}
	ended := ctx.Err()
	if ended == nil && isOver(wait) {
		ended = context.DeadlineExceeded
	}
	switch {
	case ended == nil && m.locker.closed.Load() && !errors.Is(err, ErrClosed):
		return fmt.Errorf("%w: %w", ErrClosed, err) // the pool is closed as well, and says so in its own words
	case ended == nil:
		return err
	case errors.Is(err, ErrNotAcquired):
		return fmt.Errorf("%w (%w)", err, ended)
	}
	return fmt.Errorf("%w: %w (%w)", ErrNotAcquired, err, ended)
}

// isOver tells whether a wait has ended. The server's clock, or a busy machine, may be ahead of the
// timer of its context.
func isOver(wait context.Context) bool {
	deadline, limited := wait.Deadline()
	return wait.Err() != nil || limited && !time.Now().Before(deadline)
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
	of := dialects.Inspection{Table: *found, Names: []string{}, Brief: true}
	for _, value := range request.Values {
		of.Slots = append(of.Slots, value.Text)
	}
	states, _ := inspector.Inspect(ctx, of) // an error would say nothing of the lock
	for _, s := range states {
		if h := s.Holder; s.Kind == dialects.KindRow && s.Column == "" && h != nil && h.Session != "" &&
			slices.Contains(of.Slots, s.Value) {
			process := ""
			if h.Process > 0 { // else the server does not show it
				process = fmt.Sprintf("process %d ", h.Process)
			}
			return fmt.Sprintf("session %s (%son %s, since %s)", h.Session, process, cmp.Or(h.Host, "a socket"),
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
	wanted := lineOf(request.Table, request.Column, request.Values...)
	return slices.ContainsFunc(l.sessions.All(), func(s *session[Tx]) bool {
		return s.life.Err() == nil && (before.IsZero() || s.since.Before(before)) &&
			lineOf(s.first.Table, s.first.Column, s.first.Values...) == wanted
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

// wrap says where an error comes from.
func wrap(where string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("txlock: %s: %w", where, err)
}

func (m *Mutex[Tx]) wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return wrap(verb+" "+m.target.String(), err)
}

// joinErrors is err, and a further error, as of the way out, unless err says that already.
func joinErrors(err, further error) error {
	switch {
	case further == nil || errors.Is(err, further):
		return err
	case err == nil:
		return further
	case errors.Is(err, ErrLost) && errors.Is(further, ErrLost):
		return err
	}
	return fmt.Errorf("%w (%w)", err, further)
}
