package label

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
)

// HiddenPrefix begins what is shown instead of a key: behind it are a slot, or the beginning of a
// hash.
const HiddenPrefix = "~"

// Hash is how the tables of semaphores and of elections know a name: for all clients, so that those
// with hidden keys and others mean the same one.
func Hash(name string) string {
	hash := sha256.Sum256([]byte(name))
	return hex.EncodeToString(hash[:])
}

// Hidden is what is shown instead of a name of that hash.
func Hidden(hash string) string {
	const shown = 12
	return HiddenPrefix + hash[:shown]
}

// Known is the name that a table has, or what stands for a hidden one.
func Known(named dialects.Named) string {
	if named.Name != "" {
		return FromASCII(named.Name)
	}
	return Hidden(named.Hash) + "…"
}

// ASCII writes a name in ASCII, for people: bytes that are not plain as in =2A. The end of a long
// name is left out.
func ASCII(name string) string {
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

// FromASCII undoes ASCII. Of a long name it is the beginning, and "…".
func FromASCII(text string) string {
	text, _, cut := strings.Cut(text, "#")
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '=' {
			b.WriteByte(text[i])
			continue
		}
		if code, err := strconv.ParseUint(text[i+1:min(i+3, len(text))], 16, 8); err == nil && i+2 < len(text) {
			b.WriteByte(byte(code))
		}
		i += 2
	}
	if cut {
		b.WriteString("…")
	}
	return b.String()
}
