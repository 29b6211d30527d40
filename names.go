package txlock

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// shownSlots is what a session shows of the keys whose slots it locks.
func (c *config) shownSlots(keys []string, slots []dialects.Value) []string {
	if !c.hidden {
		return keys
	}
	shown := make([]string, len(slots))
	for i, slot := range slots {
		shown[i] = label.HiddenKey(slot.Text)
	}
	return shown
}

// shownName is what a session shows of the key of a semaphore.
func (c *config) shownName(key string) string {
	if c.hidden {
		return label.HiddenName(label.Hash(key))
	}
	return key
}

// storedName is the name of a semaphore or an election, as its table has it.
func (c *config) storedName(name string) string {
	if c.hidden {
		return ""
	}
	return label.ASCII(name)
}

// nameOf prints keys for errors.
func nameOf(keys []string) string {
	const shown = 3
	var texts []string
	for _, key := range keys[:min(len(keys), shown)] {
		texts = append(texts, strconv.Quote(truncate(key)))
	}
	if len(keys) > shown {
		texts = append(texts, fmt.Sprintf("and %d more", len(keys)-shown))
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
