package txlock

import (
	"context"

	"github.com/txlock/txlock/internal/lifecycle"
)

// ownership is what a context carries of the sessions that its owner holds. Nothing else makes a
// caller the owner of a session.
type ownership struct {
	session any               // *session[Tx]
	handle  *lifecycle.Handle // by which the context's owner holds it
	outer   *ownership        // of the context that this one was derived from
}

type ownershipKey struct{}

func ownershipIn(ctx context.Context) *ownership {
	owned, _ := ctx.Value(ownershipKey{}).(*ownership)
	return owned
}

// Apart returns ctx without the ownership that it carries: with its values, its deadline and its
// cancellation, but for another owner. A call with it does not join the session that ctx holds. It
// locks on another connection, so it waits for what that session holds, for ever if that session
// waits for the call: no database sees such a circle.
func Apart(ctx context.Context) context.Context {
	if ownershipIn(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, ownershipKey{}, (*ownership)(nil))
}

// own returns parent with ownership of the session by the handle, until that is given back. The
// context ends with cause ErrLost when the session is lost.
func (s *session[Tx]) own(parent context.Context, handle *lifecycle.Handle) context.Context {
	owned := &ownership{session: s, handle: handle, outer: ownershipIn(parent)}
	return handle.Context(context.WithValue(parent, ownershipKey{}, owned))
}

// carried returns the session of l that ctx carries, and the handle by which its owner holds it, or
// nil.
func (l *Locker[Tx]) carried(ctx context.Context) (*session[Tx], *lifecycle.Handle) {
	for owned := ownershipIn(ctx); owned != nil; owned = owned.outer {
		if s, ok := owned.session.(*session[Tx]); ok && s.locker == l {
			return s, owned.handle
		}
	}
	return nil, nil
}

// carriesOpen tells whether ctx carries an open session of l.
func (l *Locker[Tx]) carriesOpen(ctx context.Context) bool {
	s, of := l.carried(ctx)
	return s != nil && of.Open()
}
