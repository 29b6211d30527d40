package serve

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/holdings"
	"github.com/txlock/txlock/serve/internal/exposition"
)

// expose writes what a look at the server has found for Prometheus. docs/alerts.md has the names.
// Keys have series of their own, also while nobody holds them. Other keys are in no label: there
// may be millions.
func expose(w io.Writer, s state, keys []string) error {
	up := exposition.Gauge{Name: "txlock_status_up", Help: "Whether the server answered the last look at its locks."}
	at := exposition.Gauge{Name: "txlock_status_timestamp_seconds", Help: "When the server last answered."}
	if !s.at.IsZero() {
		at.Add(float64(s.at.UnixMilli()) / 1000)
	}
	if s.trouble() != "" { // what it said before is left out
		up.Add(0)
		return exposition.Write(w, up, at)
	}
	up.Add(1)
	return exposition.Write(w, slices.Concat([]exposition.Gauge{up, at}, byKind(s.holdings),
		byKey(s.holdings, keys))...)
}

// tally is what is known of some locks together.
type tally struct {
	held, waiting          int
	oldestHold, oldestWait time.Duration
}

func (t *tally) add(h txlock.Holding) {
	for _, holder := range holdings.Holders(h) {
		t.oldestHold = max(t.oldestHold, holder.For)
	}
	for _, waiter := range h.Waiters {
		t.oldestWait = max(t.oldestWait, waiter.For)
	}
	if len(holdings.Holders(h)) > 0 {
		t.held++
	}
	t.waiting += len(h.Waiters)
}

func byKind(all []txlock.Holding) []exposition.Gauge {
	type group struct{ table, kind string }
	tallies := map[group]*tally{}
	for _, h := range all {
		of := group{h.Table, kindOf(h)}
		if tallies[of] == nil {
			tallies[of] = &tally{}
		}
		tallies[of].add(h)
	}
	gauges := []exposition.Gauge{
		{Name: "txlock_status_held", Help: "Locks that somebody holds."},
		{Name: "txlock_status_waiting_sessions", Help: "Sessions of the server that wait for a lock."},
		{Name: "txlock_status_oldest_hold_seconds", Help: "For how long the oldest holder has held its lock."},
		{Name: "txlock_status_oldest_wait_seconds", Help: "For how long the oldest waiter has waited, at the server."},
	}
	order := func(a, b group) int { return cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.kind, b.kind)) }
	for _, of := range slices.SortedFunc(maps.Keys(tallies), order) {
		for i, value := range tallies[of].values() {
			gauges[i].Add(value, "table", of.table, "kind", of.kind)
		}
	}
	return gauges
}

func (t *tally) values() [4]float64 {
	return [...]float64{
		float64(t.held), float64(t.waiting), t.oldestHold.Seconds(), t.oldestWait.Seconds(),
	}
}

func byKey(all []txlock.Holding, keys []string) []exposition.Gauge {
	gauges := []exposition.Gauge{
		{Name: "txlock_status_key_held", Help: "Locks of this key that somebody holds."},
		{Name: "txlock_status_key_waiting_sessions", Help: "Sessions of the server that wait for this key."},
		{Name: "txlock_status_key_hold_seconds", Help: "For how long the oldest holder has held this key."},
		{Name: "txlock_status_key_wait_seconds", Help: "For how long the oldest waiter has waited for this key."},
	}
	for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		var found tally
		for _, h := range all {
			if holdings.Shows(h.Key, key) {
				found.add(h)
			}
		}
		for i, value := range found.values() {
			gauges[i].Add(value, "key", key)
		}
	}
	return gauges
}

// mostKeys have series of their own.
const mostKeys = 100

// metrics answers Prometheus from the picture that all viewers share.
func (p *Page) metrics(w http.ResponseWriter, r *http.Request) {
	keys := r.URL.Query()["key"]
	if len(keys) > mostKeys {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("A question has %d keys at most.", mostKeys))
		return
	}
	s, err := p.watch.newest(r.Context())
	if err != nil {
		return // it has given up
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_ = expose(w, s, keys)
}
