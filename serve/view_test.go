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
