package postgres

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects"
)

// A lock is renewed every minute, with a short lease every two, so that VACUUM is at most two
// minutes behind. What cannot be renewed never is.
func TestWhenARenewalIsDue(t *testing.T) {
	slot := dialects.Request{Ours: true, Slots: 64, Values: []dialects.Value{{Text: "1"}}}
	rows, work, large, read := slot, slot, slot, slot
	rows.Ours, work.Work, read.Shared = false, true, true
	large.Values = make([]dialects.Value, maxTurnstiles+1)
	for name, due := range map[string]struct {
		request dialects.Request
		lease   time.Duration
		after   time.Duration // 0: never
	}{
		"a slot": {slot, 30 * time.Second, time.Minute}, "a long lease": {slot, time.Hour, time.Minute},
		"a short lease": {slot, 4 * time.Second, 8 * time.Second}, "rows": {rows, 30 * time.Second, 0},
		"a Do": {work, 30 * time.Second, 0}, "a large one": {large, 30 * time.Second, 0},
		"a reader": {read, 30 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r renewal
				due.request.Lease = due.lease
				r.note(due.request, dialects.Grant{})
				if due.after == 0 {
					<-time.After(24 * time.Hour)
					require.False(t, r.due())
					return
				}
				<-time.After(due.after - time.Second)
				require.False(t, r.due())
				<-time.After(time.Second)
				require.True(t, r.due())
			})
		})
	}
}
