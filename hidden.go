package txlock

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/txlock/txlock/dialects"
)

// WithHiddenKeys keeps keys from the server: those of Mutex, Once and Shared, and the names of
// semaphores and elections, show in no view, statement, table or log of the server. Sessions show
// numbers of slots instead, and the beginning of a hash of a semaphore's key. Clients with and
// without it exclude each other. What a client without it has locked shows: the tables of
// semaphores and elections then keep the name.
//
// [Locker.Inspect] finds a hidden key for who names it. Who can read the lock's tables or the
// server's views can try keys in the same way: hidden is not secret where keys can be guessed.
//
// Values of [Locker.Rows] are left out of what sessions show, so Inspect does not find these locks.
// They stand in the statement on MySQL and MariaDB, in its parameters on PostgreSQL, and in views
// of the server's locks. Identities of an [Election] are stored as they are, to be read. What the
// work of a Do sends is its own. Errors, the log and a [Tracer] of this process name keys.
func WithHiddenKeys() Option { return optionFunc(func(c *config) { c.hidden = true }) }

// hiddenMark begins what is shown instead of a key: behind it are a slot, or the beginning of a
// hash.
const hiddenMark = "~"

// shownHash is how much of a hash is shown, in hexadecimal digits.
const shownHash = 12

// hashOf is how the tables of semaphores and of elections know a name: for all clients, so that
// those with hidden keys and others mean the same one.
func hashOf(name string) string {
	hash := sha256.Sum256([]byte(name))
	return hex.EncodeToString(hash[:])
}

func hashesOf(names []string) (hashes []string) {
	for _, name := range names {
		hashes = append(hashes, hashOf(name))
	}
	return hashes
}

// hiddenHash is what is shown instead of a name.
func hiddenHash(hash string) string { return hiddenMark + hash[:shownHash] }

// shownSlots is what a session shows of the keys whose slots it locks.
func (c *config) shownSlots(keys []string, slots []dialects.Value) []string {
	if !c.hidden {
		return keys
	}
	shown := make([]string, len(slots))
	for i, slot := range slots {
		shown[i] = hiddenMark + slot.Text
	}
	return shown
}

// shownName is what a session shows of the key of a semaphore.
func (c *config) shownName(key string) string {
	if c.hidden {
		return hiddenHash(hashOf(key))
	}
	return key
}

// named is a semaphore or an election, as its table has it.
func (c *config) named(name string) dialects.Named {
	if c.hidden {
		return dialects.Named{Hash: hashOf(name)}
	}
	return dialects.Named{Hash: hashOf(name), Name: asciiKey(name)}
}

// knownName is the name that the table has, or what stands for a hidden one.
func knownName(named dialects.Named) string {
	if named.Name != "" {
		return keyOf(named.Name)
	}
	return hiddenHash(named.Hash) + "…"
}
