package serve

import (
	"fmt"
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
			"/", "/?" + q.Encode(), "/graph", "/lock?" + id.query().Encode(), "/break?session=1&" + id.query().Encode(),
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
	require.Contains(t, body, "2\u202f000 locks held or awaited")
	require.Equal(t, perPage, strings.Count(body, "<tbody"))
	require.Contains(t, body, "1 to 50 of 2000")
	last := get(p, "/?page=40").Body.String()
	require.Contains(t, last, "1951 to 2000 of 2000")
	require.NotContains(t, last, `rel="next"`)
	require.Contains(t, get(p, "/?page=99999").Body.String(), "1951 to 2000 of 2000")
	require.Contains(t, get(p, "/?page=-1").Body.String(), "1 to 50 of 2000")
	require.Contains(t, get(p, "/graph").Body.String(), "1500 more are not shown")
}

// Sessions that wait for each other are a circle. Who waits for one of them is not in it.
func TestCircles(t *testing.T) {
	t.Parallel()
	a, b, c, d := held("a", "1", "2", "9"), held("bb", "2", "3"), held("ccc", "3", "1"), held("dddd", "4", "5")
	e := held("eeeee", "7", "3")
	nodes := connect([]txlock.Holding{a, b, c, d, e})
	findCircles(nodes)
	var members []string
	for _, n := range nodes {
		if n.stuck {
			members = append(members, n.label)
		}
	}
	require.ElementsMatch(t, []string{"session 1", "session 2", "session 3"}, members)

	body := get(pageOf(t, &still{holdings: []txlock.Holding{a, b, c, d, e}}), "/graph").Body.String()
	require.Contains(t, body, "These wait for each other")
	require.Contains(t, body, "session 3 waits at bb for session 2")
	require.NotContains(t, body, "session 9 waits at a for session 1")
	require.NotContains(t, body, "session 3 waits at eeeee for session 7")
	require.NotContains(t, get(pageOf(t, &still{holdings: []txlock.Holding{a, d}}), "/graph").Body.String(), "Circle")
}

// Who waits for a permit goes on when any of its holders does.
func TestCircleOfPermits(t *testing.T) {
	t.Parallel()
	api, a := held("api", "", "1"), held("a", "2", "3")
	api.Column, api.Row = "semaphore", "api"
	api.Permits = []txlock.Session{*held("api", "2").Holder, *held("api", "3").Holder}
	graph := func(holdings ...txlock.Holding) string {
		return get(pageOf(t, &still{holdings: holdings}), "/graph").Body.String()
	}
	mine := held("b", "1", "2")
	require.NotContains(t, graph(api, mine, held("c", "9", "3")), "Circle", "session 3 will go on")
	require.Contains(t, graph(api, mine, a), "Circle", "session 3 waits for session 2")
	mine.Waiters = append(mine.Waiters, *held("b", "3").Holder)
	require.Contains(t, graph(api, mine), "Circle", "both wait for session 1")
}

func TestWords(t *testing.T) {
	t.Parallel()
	for d, text := range map[time.Duration]string{
		1234 * time.Millisecond: "1.2 s", 59 * time.Second: "59 s", 61 * time.Second: "1 min 01 s",
		3 * time.Hour: "3 h 00 min", 72 * time.Hour: "3 days",
	} {
		require.Equal(t, text, lasted(d))
	}
	require.Equal(t, "1\u202f234\u202f567 locks", counted(1234567, "lock", "locks"))
	require.Equal(t, "a[U+0000]b [U+202E]c", clean("a\x00b\n\u202ec"))
}
