package txlock

import (
	"context"

	"github.com/txlock/txlock/dialects"
)

// recorded is the key of a [Claim], behind "claim:". Under its lock a record beside the lock table
// is changed.
type recorded[Tx any] struct {
	slots[Tx]
	name  string
	claim *dialects.ClaimChange
}

func (r *recorded[Tx]) String() string { return nameOf([]string{r.name}) }

func (r *recorded[Tx]) request(ctx context.Context, connected bool) (dialects.Request, error) {
	request, err := r.slots.request(ctx, connected)
	request.Claim = r.claim
	if r.claim.Verb == dialects.TakeClaim {
		request.Fence = request.Table
	}
	return request, err
}

// record changes a claim in the work of a Do.
func (s *session[Tx]) record(ctx context.Context, request dialects.Request) (dialects.ClaimState, error) {
	state, err := s.inner.Record(ctx, request)
	return state, s.told(err)
}
