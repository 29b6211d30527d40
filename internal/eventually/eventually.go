// Package eventually has a test wait until something is so, which nothing tells of: it asks again
// and again. testify's Eventually does so on another goroutine, where a require in the condition
// does not end the test.
package eventually

import (
	"testing"
	"time"
)

// patience tells late from never, on a machine that is busy with other things.
const patience = 20 * time.Second

// True waits until is returns true. After 20 s the test fails: what says what it has waited for.
func True(t testing.TB, what string, is func() bool) {
	t.Helper()
	Every(t, what, 5*time.Millisecond, is)
}

// Every is True with a pause of its own between two calls of is, for what must not be asked more
// often.
func Every(t testing.TB, what string, pause time.Duration, is func() bool) {
	t.Helper()
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for deadline := time.Now().Add(patience); !is(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("not in %v: %s", patience, what)
		}
	}
}
