package doctor

import (
	"fmt"
	"time"

	"github.com/txlock/txlock"
)

const (
	// longAfter is how old a transaction is that holds back vacuum or purge for long.
	longAfter = 5 * time.Minute
	// farBehind is how many transactions an abandoned replication slot is behind before it matters.
	farBehind = 1_000_000
)

// session is one that is in an old transaction.
type session struct {
	id   string // the server's number
	text string // names it
	aged time.Duration
}

// holdsBack is the finding for a session. what is the server's work that it holds back, why says
// what comes of that, and end is the statement that ends it. ours has the sessions of txlock.
func (s session) holdsBack(what, why string, ours map[string]string, end string) Finding {
	finding := Finding{
		Severity: Note, Why: why,
		Found: fmt.Sprintf("%s has held back %s for %v", s.text, what, s.aged.Round(time.Second)),
		Fix:   statements(end).only("end its transaction; or this, if its work may be undone:"),
	}
	if lock, known := ours[s.id]; known {
		finding.Found += ": " + lock
		finding.Why += ". It is a lock of txlock: as long as somebody holds it or waits for it, its transaction lasts"
		finding.Fix = statements(end).only("hold it for less time; or this, if nobody needs it: its holder is told")
	}
	return finding
}

// locksOf says of each session that holds or awaits a lock which one.
func locksOf(holdings []txlock.Holding) map[string]string {
	names := map[string]string{}
	note := func(s txlock.Session, does, what string) {
		if s.ID != "" && names[s.ID] == "" {
			names[s.ID] = fmt.Sprintf("it %s txlock's lock of %s", does, what)
			if s.Process != 0 {
				names[s.ID] += fmt.Sprintf(", for process %d", s.Process)
			}
		}
	}
	for _, h := range holdings {
		what := fmt.Sprintf("%q", h.Key)
		switch {
		case h.Column == "election":
			what = "the election " + what
		case h.Column != "":
			what = fmt.Sprintf("%s.%s %s", h.Table, h.Column, h.Row)
		case h.Key == "":
			what = "slot " + h.Row
		}
		if h.Holder != nil {
			note(*h.Holder, "holds", what)
		}
		for _, waiter := range h.Waiters {
			note(waiter, "waits for", what)
		}
	}
	return names
}
