package serve

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
)

func TestHostileKeys(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onclick='alert(1)`, "a\u202egnp.exe",
		"\u0627\u0644\u0642\u0641\u0644",
		strings.Repeat("k", 10<<10), "nul\x00, bad \xff, line\r\nevent: picture\ndata: x", "{{.}}", "&lt;b&gt;",
	} {
		p := pageOf(t, &still{holdings: []txlock.Holding{held(key, "1", "2"), held(key+"x", "2", "1")}}, AllowBreak())
		id := idOf(held(key, "1"))
		q := url.Values{"key": {key}}
		for _, target := range []string{
			"/", "/?" + q.Encode(), "/lock?" + id.query().Encode(), "/break?session=1&" + id.query().Encode(),
			"/lock?table=" + url.QueryEscape(key) + "&column=" + url.QueryEscape(key) + "&row=1",
		} {
			w := get(p, target)
			require.Equal(t, 200, w.Code, target)
			body := w.Body.String()
			for _, raw := range []string{"<script>", "<img", "' onclick", "\x00"} {
				require.NotContains(t, body, raw, target)
			}
			if !strings.Contains(target, "?key=") { // the field of the search keeps what was typed
				require.NotContains(t, body, "\u202e", target)
			}
		}
		require.Contains(t, get(p, "/?"+q.Encode()).Body.String(), "2 locks with")
	}
}

// A search finds what it names, also where the server shows only the beginning of a key.
func TestSearch(t *testing.T) {
	t.Parallel()
	row := txlock.Holding{Table: "stock", Column: "sku", Row: "42"}
	for _, c := range []struct {
		h      txlock.Holding
		search string
		found  bool
	}{
		{held("sku:42", "1"), "SKU", true},
		{held("sku:42", "1"), "43", false},
		{held("sku:42", "1"), "slot 6", true},
		{held("a long begi…", "1"), "a long beginning", true},
		{held("a long begi…", "1"), "another", false},
		{held("…", "1"), "another", false},
		{row, "stock.sku=42", true},
		{row, "slot", false},
	} {
		require.Equal(t, c.found, matches(c.h, c.search), "%s in %s", c.search, nameOf(c.h))
	}
}

func TestManyLocks(t *testing.T) {
	t.Parallel()
	var holdings []txlock.Holding
	for i := range 2000 {
		h := held(fmt.Sprint("key-", i), fmt.Sprint(i), fmt.Sprint(5000+i))
		h.Row = fmt.Sprint(i)
		holdings = append(holdings, h)
	}
	p := pageOf(t, &still{holdings: holdings})
	body := get(p, "/").Body.String()
	require.Contains(t, body, "2000 locks held or awaited")
	require.Equal(t, mostLocks, strings.Count(body, "<tbody"))
	require.Contains(t, body, "1900 more are not shown")
	require.Contains(t, get(p, "/?key=key-1999").Body.String(), "1 lock with")
}

func TestWords(t *testing.T) {
	t.Parallel()
	require.Equal(t, "1.2s", lasted(1234*time.Millisecond))
	require.Equal(t, "1m1s", lasted(61*time.Second+time.Millisecond))
	require.Equal(t, "1 lock", counted(1, "lock", "locks"))
	require.Equal(t, "a[U+0000]b [U+202E]c", clean("a\x00b\n\u202ec"))
}

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

// Prometheus gets what all viewers see, behind the same token. Keys that are not asked for are in
// no label.
func TestMetrics(t *testing.T) {
	t.Parallel()
	locks := &still{}
	claim := held("seat", "")
	claim.Column, claim.Holder = "claim", &txlock.Session{By: "cart", For: time.Hour}
	locks.show([]txlock.Holding{
		held("sku:42", "1", "2", "3"), held("a\nsecret", "4"), claim,
		held("tenant:4711/nig…", "5", "6"), held("…", "7"),
	}, nil)
	const token = "0123456789abcdef"
	p := pageOf(t, locks, Every(leastEvery), Token(token))
	ask := func(given string) (int, string) {
		r := httptest.NewRequest(http.MethodGet,
			"http://localhost/metrics?key=sku:42&key=a%22b&key=tenant:4711/nightly", nil)
		r.Header.Set("Authorization", "Bearer "+given)
		answer := httptest.NewRecorder()
		p.ServeHTTP(answer, r)
		return answer.Code, answer.Body.String()
	}
	code, text := ask("wrong")
	require.Equal(t, 401, code)
	require.NotContains(t, text, "txlock_status")
	code, text = ask(token)
	require.Equal(t, 200, code)
	for _, line := range []string{
		"txlock_status_up 1",
		`txlock_status_held{table="txlock_slots",kind="lock"} 4`,
		`txlock_status_waiting_sessions{table="txlock_slots",kind="lock"} 3`,
		`txlock_status_oldest_hold_seconds{table="txlock_slots",kind="lock"} 60`,
		`txlock_status_oldest_hold_seconds{table="txlock_slots",kind="claim"} 3600`,
		`txlock_status_oldest_wait_seconds{table="txlock_slots",kind="lock"} 2`,
		`txlock_status_key_hold_seconds{key="sku:42"} 60`,
		`txlock_status_key_held{key="a\"b"} 0`,
		`txlock_status_key_held{key="tenant:4711/nightly"} 1`,
		`txlock_status_key_wait_seconds{key="tenant:4711/nightly"} 1`,
	} {
		require.Contains(t, text, "\n"+line+"\n")
	}
	require.NotContains(t, text, "secret")

	locks.show(nil, errDown)
	until(t, "it is down", func() bool {
		_, text = ask(token)
		return strings.Contains(text, "\ntxlock_status_up 0\n")
	})
	require.Contains(t, text, "txlock_status_timestamp_seconds")
	require.NotContains(t, text, "txlock_status_held")

	many := "/metrics?" + strings.Repeat("key=a&", mostKeys+1)
	require.Equal(t, 400, get(p, many, "Authorization", "Bearer "+token).Code)
}
