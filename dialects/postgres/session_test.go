package postgres

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects"
)

// A lock is renewed every minute at least, with a short lease every two, so that VACUUM is at most
// two minutes behind. What cannot be renewed never is.
func TestWhenARenewalIsDue(t *testing.T) {
	slot := dialects.Request{Ours: true, Slots: 64, Values: []dialects.Value{{Text: "1"}}}
	rows, work, read := slot, slot, slot
	rows.Ours, work.Work, read.Shared = false, &dialects.Work{}, true
	for name, due := range map[string]struct {
		request dialects.Request
		lease   time.Duration
		after   time.Duration // 0: never
	}{
		"a slot": {slot, 30 * time.Second, time.Minute}, "a long lease": {slot, time.Hour, time.Minute},
		"a short lease": {slot, 4 * time.Second, 8 * time.Second}, "rows": {rows, 30 * time.Second, 0},
		"a Do": {work, 30 * time.Second, 0}, "a reader": {read, 30 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := session[pgx.Tx]{lease: due.lease, held: []dialects.Request{due.request}}
				if due.request.Work != nil {
					s.mark = "work"
				}
				require.False(t, s.mustRenew())
				if due.after == 0 {
					<-time.After(24 * time.Hour)
					require.False(t, s.mustRenew())
					return
				}
				for range 3 {
					<-time.After(due.after/2 - time.Nanosecond)
					require.False(t, s.mustRenew())
					<-time.After(due.after / 2)
					require.True(t, s.mustRenew())
					s.planRenewal()
				}
			})
		})
	}
}

// Sessions that began together are renewed a few at a time.
func TestRenewalsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sessions, looks = 1200, 12 // from half a minute to a minute, every 2.5 s
		all := make([]session[pgx.Tx], sessions)
		for i := range all {
			all[i].lease = 30 * time.Second
			all[i].held = []dialects.Request{{Ours: true, Slots: 64}}
			require.False(t, all[i].mustRenew())
		}
		<-time.After(30 * time.Second)
		renewed := 0
		for range looks {
			<-time.After(2500 * time.Millisecond)
			now := 0
			for i := range all {
				if all[i].mustRenew() {
					all[i].mark = "renewed"
					now++
				}
			}
			require.InDelta(t, sessions/looks, now, 60) // six times the standard deviation
			renewed += now
		}
		require.Equal(t, sessions, renewed)
	})
}
