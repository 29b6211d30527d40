package txlock

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// slots are rows of the lock table, which keys hash to once the number of slots is known.
func (l *Locker[Tx]) slots(keys ...string) target {
	own := func(found *dialects.LockTable) dialects.Request {
		values, shown := slotsOf(keys, found.Slots), keys
		if l.config.hidden {
			shown = make([]string, len(values))
			for i, slot := range values {
				shown[i] = label.Hidden(slot.Text)
			}
		}
		return dialects.Request{
			Table: found.Name, Column: slotColumn, Values: values, Ours: true, Slots: found.Slots,
			Label: label.Keys(shown...),
		}
	}
	return target{call: Call{Names: keys}, own: own}
}

// slotColumn is the lock table's primary key.
const slotColumn = "slot"

// slotsOf are the slots of keys, each once, in ascending order.
func slotsOf(keys []string, n int) []dialects.Value {
	slots := make([]int, 0, 8)
	for _, key := range keys {
		slots = append(slots, dialects.SlotOf(key, n))
	}
	slices.Sort(slots)
	slots = slices.Compact(slots)
	values := make([]dialects.Value, len(slots))
	for i, slot := range slots {
		values[i].Text = strconv.Itoa(slot)
	}
	return values
}

// shownName is what a session shows of the key of a semaphore.
func (c *config) shownName(key string) string {
	if c.hidden {
		return label.Hidden(label.Hash(key))
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
