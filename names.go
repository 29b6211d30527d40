package txlock

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
)

// hiddenPrefix begins what is shown instead of a key: behind it are a slot, or the beginning of a
// hash.
const hiddenPrefix = "~"

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
func hiddenHash(hash string) string { return hiddenPrefix + hash[:shownHash] }

// shownSlots is what a session shows of the keys whose slots it locks.
func (c *config) shownSlots(keys []string, slots []dialects.Value) []string {
	if !c.hidden {
		return keys
	}
	shown := make([]string, len(slots))
	for i, slot := range slots {
		shown[i] = hiddenPrefix + slot.Text
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
func (c *config) named(kind dialects.Kind, name string) dialects.Named {
	named := dialects.Named{Kind: kind, Hash: hashOf(name)}
	if !c.hidden {
		named.Name = asciiKey(name)
	}
	return named
}

// knownName is the name that the table has, or what stands for a hidden one.
func knownName(named dialects.Named) string {
	if named.Name != "" {
		return keyOf(named.Name)
	}
	return hiddenHash(named.Hash) + "…"
}

// asciiKey writes a name in ASCII, for people: bytes that are not plain as in =2A. The end of a
// long name is left out.
func asciiKey(name string) string {
	const longest, shown = 191, 100
	var b strings.Builder
	for _, c := range []byte(name) {
		switch {
		case '0' <= c && c <= '9', 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', strings.IndexByte("_-.:/@", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	if b.Len() <= longest {
		return b.String()
	}
	return b.String()[:shown] + "#"
}

// keyOf undoes asciiKey. Of a long key it is the beginning, and "…".
func keyOf(name string) string {
	name, _, cut := strings.Cut(name, "#")
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] != '=' {
			b.WriteByte(name[i])
			continue
		}
		if code, err := strconv.ParseUint(name[i+1:min(i+3, len(name))], 16, 8); err == nil && i+2 < len(name) {
			b.WriteByte(byte(code))
		}
		i += 2
	}
	if cut {
		b.WriteString("…")
	}
	return b.String()
}

// nameOf prints keys for errors.
func nameOf(keys []string) string {
	const shown = 3
	texts := make([]string, 0, shown+1)
	for i, key := range keys {
		if i == shown {
			texts = append(texts, fmt.Sprintf("and %d more", len(keys)-shown))
			break
		}
		texts = append(texts, strconv.Quote(truncate(key)))
	}
	return strings.Join(texts, ", ")
}

func nameOfRows(table, column string, values []any) string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = fmt.Sprint(value)
	}
	return truncate(table) + "." + truncate(column) + " " + nameOf(texts)
}

// truncate keeps the beginning of a long text.
func truncate(text string) string {
	const longest = 64
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest], "") + "…"
}
