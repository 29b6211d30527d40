package serve

import (
	"fmt"
	"strings"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/holdings"
)

// What differs from one kind of lock to another is in this file.

// kindOf says what kind of lock a row is.
func kindOf(h txlock.Holding) string {
	switch {
	case holdings.IsSemaphore(h):
		return "permits"
	case len(h.Readers) > 0:
		return "shared"
	case holdings.IsElection(h):
		return "leader"
	case holdings.IsClaim(h):
		return "claim"
	case h.Column != "":
		return "row"
	case strings.HasPrefix(h.Key, "once:"):
		return "once"
	}
	return "lock"
}

// together says how several sessions hold a row.
func together(h txlock.Holding, sessions int) string {
	switch {
	case holdings.IsSemaphore(h):
		return fmt.Sprintf("%d permits held", sessions)
	case len(h.Readers) > 0:
		return fmt.Sprintf("shared by %d", sessions)
	}
	return fmt.Sprintf("held by %d", sessions)
}

// nameOf is what people call the lock.
func nameOf(h txlock.Holding) string {
	if h.Key != "" && (h.Column == "" || holdings.IsSemaphore(h) || holdings.IsElection(h) || holdings.IsClaim(h)) {
		return h.Key
	}
	return holdings.Row(h)
}
