package serve

import (
	"fmt"
	"strings"

	"github.com/txlock/txlock"
)

// What differs from one kind of lock to another is in this file.

// holdersOf are the sessions that hold a row.
func holdersOf(h txlock.Holding) []txlock.Session {
	if h.Holder != nil {
		return []txlock.Session{*h.Holder}
	}
	return nil
}

// kindOf says what kind of lock a row is.
func kindOf(h txlock.Holding) string {
	switch {
	case h.Column != "" && strings.HasSuffix(strings.Trim(h.Table, "`\""), "_leaders"):
		return "leader"
	case h.Column != "":
		return "row"
	case strings.HasPrefix(h.Key, "once:"):
		return "once"
	}
	return "lock"
}

// holds says how a session holds a row.
func holds(txlock.Session, txlock.Holding) string { return "held" }

// together says how several sessions hold a row.
func together(_ txlock.Holding, sessions int) string { return fmt.Sprintf("held by %d", sessions) }

// waits says what a session waits for.
func waits(txlock.Session) string { return "waits" }

// nameOf is what people call the lock.
func nameOf(h txlock.Holding) string {
	switch {
	case h.Column != "":
		return fmt.Sprintf("%s.%s=%s", h.Table, h.Column, h.Row)
	case h.Key != "":
		return h.Key
	}
	return "slot " + h.Row
}
