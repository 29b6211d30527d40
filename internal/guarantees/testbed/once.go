package testbed

import (
	"crypto/rand"
	"strings"
)

// OnceKey is a key that no other test and no other run uses, and whose lock has a slot of its own.
// Prefix is what the name of that lock begins with.
func (f *Fixture[Tx]) OnceKey(prefix, name string) string {
	return strings.TrimPrefix(f.Key(prefix+name+"."+rand.Text()[:8]), prefix)
}
