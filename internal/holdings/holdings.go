// Package holdings reads what [txlock.Locker.Inspect] shows, for the command, the page and tests.
package holdings

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/txlock/txlock"
)

// IsSemaphore tells whether it is a semaphore. Rows may have a column of that name, but no key.
func IsSemaphore(h txlock.Holding) bool { return h.Column == "semaphore" && h.Key != "" }

// IsElection tells whether it is an election, whose holder leads.
func IsElection(h txlock.Holding) bool { return h.Column == "election" && h.Key != "" }

// IsClaim tells whether it is a claim. Its holder has no session.
func IsClaim(h txlock.Holding) bool { return h.Holder != nil && h.Holder.By != "" }

// Holders are all that hold it, alone or together.
func Holders(h txlock.Holding) []txlock.Session {
	if h.Holder != nil {
		return []txlock.Session{*h.Holder}
	}
	return slices.Concat(h.Readers, h.Permits)
}

// State says how one of its holders holds it.
func State(h txlock.Holding, holder txlock.Session) string {
	switch {
	case IsSemaphore(h):
		return fmt.Sprintf("permit %d", holder.Permit)
	case IsElection(h):
		return "leads"
	case holder.By != "":
		return "claimed"
	case holder.Prepared != "":
		return "prepared"
	case holder.Shared || len(h.Readers) > 0:
		return "shared"
	}
	return "held"
}

// Waits says what a waiter waits for.
func Waits(waiter txlock.Session) string {
	if waiter.Shared {
		return "waits to share"
	}
	return "waits"
}

// Shows tells whether a key is the one that the server shows, of which it may show the beginning.
func Shows(shown, key string) bool {
	beginning, short := strings.CutSuffix(shown, "…")
	return shown == key || short && beginning != "" && strings.HasPrefix(key, beginning)
}

// Row is the name of a row that has no key: table.column=row, or its slot.
func Row(h txlock.Holding) string {
	if h.Column != "" {
		return fmt.Sprintf("%s.%s=%s", h.Table, h.Column, h.Row)
	}
	return "slot " + h.Row
}

// Client describes the process of a session.
func Client(s txlock.Session) string {
	switch {
	case s.Process > 0 && s.Host != "":
		return fmt.Sprintf("process %d on %s", s.Process, s.Host)
	case s.Process > 0:
		return fmt.Sprintf("process %d", s.Process)
	}
	return s.Host
}

// ByUrgency sorts what is awaited before the rest, and the longest first. It compares when they
// began, because the server may have been asked about the locks at different times.
func ByUrgency(a, b txlock.Holding) int {
	return cmp.Or(last(len(a.Waiters) == 0)-last(len(b.Waiters) == 0), byBegin(a.Waiters, b.Waiters),
		byBegin(Holders(a), Holders(b)))
}

// byBegin compares the earliest begins. Unknown ones come last.
func byBegin(a, b []txlock.Session) int {
	earliest := func(of []txlock.Session) (first txlock.Session) {
		for _, s := range of {
			if !s.Since.IsZero() && (first.Since.IsZero() || s.Since.Before(first.Since)) {
				first = s
			}
		}
		return first
	}
	first, second := earliest(a).Since, earliest(b).Since
	if first.IsZero() || second.IsZero() {
		return last(first.IsZero()) - last(second.IsZero())
	}
	return first.Compare(second)
}

func last(is bool) int {
	if is {
		return 1
	}
	return 0
}
