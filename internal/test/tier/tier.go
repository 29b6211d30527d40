// Package tier tells a test how much to show. The tiers are those of the Makefile: the short one of
// make test, which is "go test -short", the usual one of make test-landing, and that of make
// test-full, which sets TXLOCK_FULL.
package tier

import (
	"os"
	"testing"
)

// Full says whether the whole matrix and the long figures are asked for.
func Full() bool { return os.Getenv("TXLOCK_FULL") != "" && !testing.Short() }

// Pick returns what the tier at hand asks for.
func Pick[T any](short, usual, full T) T {
	switch {
	case testing.Short():
		return short
	case Full():
		return full
	default:
		return usual
	}
}
