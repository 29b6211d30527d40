package serve

import (
	"fmt"
	"slices"
	"strings"

	"github.com/txlock/txlock"
)

// What differs from one kind of lock to another is in this file.

// The columns of semaphores and of elections. Rows may have columns of these names, but no key.
const (
	semaphore = "semaphore"
	election  = "election"
)

// holdersOf are the sessions that hold a row.
func holdersOf(h txlock.Holding) []txlock.Session {
	if h.Holder != nil {
		return []txlock.Session{*h.Holder}
	}
	return slices.Concat(h.Readers, h.Permits)
}

// kindOf says what kind of lock a row is.
func kindOf(h txlock.Holding) string {
	switch {
	case h.Column == semaphore && h.Key != "":
		return "permits"
	case len(h.Readers) > 0:
		return "shared"
	case h.Column == election && h.Key != "":
		return "leader"
	case isClaim(h):
		return "claim"
	case h.Column != "":
		return "row"
	case strings.HasPrefix(h.Key, "once:"):
		return "once"
	}
	return "lock"
}

// isClaim tells whether it is a claim. Its holder has no session.
func isClaim(h txlock.Holding) bool { return h.Holder != nil && h.Holder.By != "" }

// holds says how a session holds a row.
func holds(s txlock.Session, h txlock.Holding) string {
	switch {
	case h.Column == semaphore && h.Key != "":
		return fmt.Sprintf("permit %d", s.Permit)
	case h.Column == election && h.Key != "":
		return "leads"
	case s.By != "":
		return "claimed"
	case s.Prepared != "":
		return "prepared"
	case s.Shared:
		return "shared"
	}
	return "held"
}

// together says how several sessions hold a row.
func together(h txlock.Holding, sessions int) string {
	switch {
	case h.Column == semaphore && h.Key != "":
		return fmt.Sprintf("%d permits held", sessions)
	case len(h.Readers) > 0:
		return fmt.Sprintf("shared by %d", sessions)
	}
	return fmt.Sprintf("held by %d", sessions)
}

// anyWillDo tells whether a wait for the row ends when any of those that hold it goes on.
func anyWillDo(h txlock.Holding) bool { return h.Column == semaphore && h.Key != "" }

// waits says what a session waits for.
func waits(s txlock.Session) string {
	if s.Shared {
		return "waits to share"
	}
	return "waits"
}

// nameOf is what people call the lock.
func nameOf(h txlock.Holding) string {
	switch {
	case (h.Column == semaphore || h.Column == election || isClaim(h)) && h.Key != "":
		return h.Key
	case h.Column != "":
		return fmt.Sprintf("%s.%s=%s", h.Table, h.Column, h.Row)
	case h.Key != "":
		return h.Key
	}
	return "slot " + h.Row
}
