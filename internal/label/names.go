package label

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
)

// hiddenPrefix begins what is shown instead of a key: behind it are a slot, or the beginning of a
// hash.
const hiddenPrefix = "~"

// Hash is how the tables of semaphores and of elections know a name: for all clients, so that those
// with hidden keys and others mean the same one.
func Hash(name string) string {
	hash := sha256.Sum256([]byte(name))
	return hex.EncodeToString(hash[:])
}

// HiddenName is what is shown instead of a name of that hash.
func HiddenName(hash string) string { return hiddenPrefix + hash[:12] }

// HiddenKey is what is shown instead of a key of that slot.
func HiddenKey(slot string) string { return hiddenPrefix + slot }

// Known is the name that a table has, or what stands for a hidden one.
func Known(hash, name string) string {
	if name != "" {
		return FromASCII(name)
	}
	return HiddenName(hash) + "…"
}

// toASCII makes of an escape in a URL that of the tables, =2A.
var toASCII = strings.NewReplacer("%2F", "/", "%", "=", "=", "=3D")

// ASCII writes a name in ASCII, for people. The end of a long name is left out.
func ASCII(name string) string {
	const most, shown = 191, 100
	if text := toASCII.Replace(url.PathEscape(name)); len(text) <= most {
		return text
	} else {
		return text[:shown] + "#"
	}
}

// FromASCII undoes ASCII. Of a long name it is the beginning, and "…".
func FromASCII(text string) string {
	text, _, cut := strings.Cut(text, "#")
	text = unescape(strings.ReplaceAll(text, "=", "%"))
	if cut {
		text += "…"
	}
	return text
}
