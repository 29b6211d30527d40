package txlock

import (
	"context"
	"fmt"

	"github.com/txlock/txlock/dialects"
)

// recorded is the key of a [Once], behind "once:". Under its lock a record beside the lock table is
// changed.
type recorded[Tx any] struct {
	slots[Tx]
	name   string
	marker *dialects.Marker // nil: none
}

func (r *recorded[Tx]) String() string { return nameOf([]string{r.name}) }

func (r *recorded[Tx]) request(ctx context.Context, connected bool) (dialects.Request, error) {
	request, err := r.slots.request(ctx, connected)
	if r.marker != nil {
		marker := *r.marker
		request.Marker = &marker
	}
	return request, err
}

// queueAndBegin finds what was done without a lock.
func (r *recorded[Tx]) queueAndBegin(ctx, wait context.Context, of fmt.Stringer, request dialects.Request) (
	g grant[Tx], err error,
) {
	if request.Marker != nil {
		if _, err := r.driver.Done(wait, request.Table, *request.Marker); err != nil {
			return g, err
		}
	}
	return r.slots.queueAndBegin(ctx, wait, of, request)
}

// record writes or deletes what a key stands for, in the work of a Do.
func (s *session[Tx]) record(ctx context.Context, request dialects.Request) error {
	return s.told(s.inner.Record(ctx, request))
}
