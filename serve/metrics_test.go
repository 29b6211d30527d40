package serve

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
)

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
