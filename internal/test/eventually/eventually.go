// Package eventually lets a test wait for a condition by asking again and again. testify's
// Eventually asks on another goroutine, where a failing require does not end the test.
package eventually

import (
	"testing"
	"time"
)

// Patience is long enough to tell late from never on a busy machine.
const Patience = time.Minute

// True waits until is returns true. After [Patience] the test fails, and names what it has waited
// for.
func True(t testing.TB, what string, is func() bool) {
	t.Helper()
	Every(t, what, 5*time.Millisecond, is)
}

// Every is True with its own pause between two calls of is, for a condition that must not be asked
// more often.
func Every(t testing.TB, what string, pause time.Duration, is func() bool) {
	t.Helper()
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for deadline := time.Now().Add(Patience); !is(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("not in %v: %s", Patience, what)
		}
	}
}
