package txlock

import (
	"context"
	"fmt"

	"github.com/txlock/txlock/dialects"
)

// recorded is the key of a [Once], behind "once:", or of a [Claim], behind "claim:". Under its lock
// a record beside the lock table is changed.
type recorded[Tx any] struct {
	slots[Tx]
	name   string
	marker *dialects.Marker // nil: none is to be written
	claim  *dialects.ClaimChange
}

func (r *recorded[Tx]) String() string { return nameOf([]string{r.name}) }

func (r *recorded[Tx]) request(ctx context.Context, connected bool) (dialects.Request, error) {
	request, err := r.slots.request(ctx, connected)
	request.Marker, request.Claim = r.marker, r.claim
	if r.claim != nil && r.claim.Verb == dialects.TakeClaim {
		request.Fence, request.Tokens = request.Table, 1
	}
	return request, err
}

// queueAndBegin finds what was done without waiting: in the flight of the lock, where that may be
// asked for at once, else in one of its own.
func (r *recorded[Tx]) queueAndBegin(ctx, wait context.Context, of fmt.Stringer, request dialects.Request) (
	g grant[Tx], err error,
) {
	if request.Marker == nil {
		return r.slots.queueAndBegin(ctx, wait, of, request)
	}
	if !request.Try {
		place, free, err := r.lines().Try(lineOf(request.Table, request.Column, request.Values...))
		if err != nil {
			return g, err
		}
		if free {
			return r.begin(ctx, wait, of, request, place)
		}
	}
	at, err := r.driver.Done(wait, request.Table, *request.Marker)
	switch {
	case err != nil:
		return g, err
	case !at.IsZero():
		return g, dialects.ErrDone
	}
	return r.slots.queueAndBegin(ctx, wait, of, request)
}

// record writes or deletes what a key stands for, in the work of a Do.
func (s *session[Tx]) record(ctx context.Context, request dialects.Request) (dialects.ClaimState, error) {
	state, err := s.inner.Record(ctx, request)
	return state, s.told(err)
}
