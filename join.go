package txlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/lifecycle"
)

// join locks the rows of m in the caller's own session. After an error the handle was given back.
// After a success a Do keeps the turn.
func (m *Mutex[Tx]) join(ctx, wait context.Context, g grant[Tx], try, work bool) (grant[Tx], error) {
	request, err := m.sessionRequest(wait, try, work, true)
	if err == nil {
		err = g.lock(wait, request)
	}
	m.target.invalidate(err)
	if err = m.waitError(ctx, wait, err); err != nil {
		return grant[Tx]{}, joinErrors(err, g.leave(ctx, g.handle)) // which may be the last, and nobody else is told
	}
	if g.Affected != nil { // nothing is left to be done
		_ = g.leave(ctx, g.handle) // see lock
		return grant[Tx]{Grant: g.Grant}, nil
	}
	return g, nil
}

// lock locks what the session does not hold of request for certain, or holds without the token that
// is asked for.
func (g *grant[Tx]) lock(ctx context.Context, request dialects.Request) error {
	turn, err := g.turns.Take(ctx, g.handle.Scope())
	switch {
	case errors.Is(err, lifecycle.ErrNested):
		return fmt.Errorf("%w: %w", ErrNotAcquired, err)
	case errors.Is(err, lifecycle.ErrEnded):
		return g.handle.Err()
	case err != nil:
		return fmt.Errorf("%w: another call uses the session: %w", ErrNotAcquired, err)
	}
	defer func() {
		if g.turn == nil { // also when the client library panicked
			turn.Give()
		}
	}()
	if err = g.handle.Err(); err == nil {
		g.Grant, err = g.lockMissing(ctx, request, turn.Scope)
	}
	// The session, or the scope of this call, may have ended meanwhile. The end of an outlived
	// session waits for this turn, and may commit what statements have done.
	if ended := g.handle.Err(); ended != nil && (g.Affected == nil || !errors.Is(ended, errOutlived)) {
		err = ended
	}
	if request.Work && err == nil && g.Affected == nil {
		g.turn = turn
	}
	return err
}

// lockMissing locks what the session does not hold of request, with the turn taken. It returns the
// largest token of all.
func (s *session[Tx]) lockMissing(ctx context.Context, request dialects.Request, scope *lifecycle.Scope) (
	got dialects.Grant, err error,
) {
	missing, got, err := s.missing(request)
	if len(missing) == 0 {
		s.heartbeat.Check() // nobody asks the server
	}
	for _, request := range missing {
		var fresh dialects.Grant
		if fresh, err = s.joinRows(ctx, request, scope); err != nil {
			break
		}
		got.Token, got.Row, got.Affected = max(got.Token, fresh.Token), fresh.Row, fresh.Affected
	}
	return got, err
}

// joinRows locks what request names, with the turn taken.
func (s *session[Tx]) joinRows(ctx context.Context, request dialects.Request, scope *lifecycle.Scope) (
	got dialects.Grant, err error,
) {
	defer s.heartbeat.Busy()() // it may wait for long, and no ping comes between
	asked := time.Now()
	got, err = s.inner.Join(ctx, request)
	if errors.Is(err, ErrLost) {
		return got, s.told(err)
	}
	s.heartbeat.Heard(asked) // any other error is an answer too
	if err == nil || isOfWork(err) {
		s.addHeld(request, got, scope)
	}
	return got, err
}
