package testbed

import (
	"crypto/rand"
	"slices"

	"github.com/txlock/txlock/dialects"
)

// OnceKey is a key that no other test and no other run uses. The name of its lock begins with one
// of the prefixes, and each of these has a slot of its own.
func (f *Fixture[Tx]) OnceKey(name string, prefixes ...string) string {
	usedSlots.mu.Lock()
	defer usedSlots.mu.Unlock()
	for {
		key := name + "." + rand.Text()[:8]
		var slots []uint32
		for _, prefix := range prefixes {
			slot := SlotOf(prefix+key, dialects.DefaultSlots)
			if usedSlots.taken[slot] || slices.Contains(slots, slot) {
				break
			}
			slots = append(slots, slot)
		}
		if len(slots) < len(prefixes) {
			continue
		}
		for i, prefix := range prefixes {
			f.keys[prefix+key], usedSlots.taken[slots[i]] = prefix+key, true
		}
		return key
	}
}
