package serve

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
)

// Readers and permits are shown one by one, and the one that was chosen is ended.
func TestSeveralHolders(t *testing.T) {
	t.Parallel()
	shared, permits := held("sku:42", "", "9"), held("api", "")
	shared.Readers = []txlock.Session{*held("sku:42", "1").Holder, *held("sku:42", "2").Holder}
	for _, s := range []*txlock.Session{&shared.Readers[0], &shared.Readers[1], &shared.Waiters[0]} {
		s.Shared = true
	}
	permits.Column, permits.Row = "semaphore", "api"
	permits.Permits = []txlock.Session{*held("api", "3").Holder, *held("api", "4").Holder}
	permits.Permits[1].Permit = 7
	leader := held("scheduler", "5")
	leader.Column, leader.Row = "election", "scheduler"
	claim := txlock.Holding{Table: "txlock_slots", Column: "claim", Row: "77", Key: "seat:1", Holder: &txlock.Session{
		Key: "seat:1", By: "cart <77>", Since: time.Now(), Until: time.Now().Add(time.Hour),
	}}
	locks := &still{holdings: []txlock.Holding{shared, permits, leader, claim}}
	p := pageOf(t, locks, AllowBreak())
	list := get(p, "/").Body.String()
	for _, told := range []string{"shared", "permit 0", "permit 7", "waits to share", "leads"} {
		require.Contains(t, list, "<td>"+told+"</td>")
	}
	require.Contains(t, get(p, "/lock?"+idOf(shared).query().Encode()).Body.String(), "kind: shared, shared by 2")
	require.Contains(t, get(p, "/lock?"+idOf(leader).query().Encode()).Body.String(), "kind: leader, leads")
	page := get(p, "/lock?"+idOf(claim).query().Encode()).Body.String()
	require.Contains(t, page, "kind: claim, claimed")
	require.Contains(t, page, "<dt>Claimed by</dt><dd><bdi>cart &lt;77&gt;</bdi>, until ")
	require.NotContains(t, page, "not named")
	require.Contains(t, get(p, "/lock?"+idOf(permits).query().Encode()).Body.String(), "kind: permits, 2 permits held")
	for _, c := range []struct {
		h       txlock.Holding
		session string
	}{{shared, "2"}, {permits, "4"}} {
		q := idOf(c.h).query()
		q.Set("session", c.session)
		w := asked(p, "POST", "/break", offered(t, p, q), "Sec-Fetch-Site", "same-origin")
		require.Equal(t, 200, w.Code)
	}
	require.Equal(t, []string{"2", "4"}, locks.ended)
}
