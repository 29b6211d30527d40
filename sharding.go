package txlock

import (
	"slices"
	"strconv"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// slots are rows of the lock table, which keys hash to once the number of slots is known.
func (l *Locker[Tx]) slots(keys ...string) target {
	t := l.inTable(func(found *dialects.LockTable) dialects.Request {
		values := slotsOf(keys, found.Slots)
		return dialects.Request{
			Table: found.Name, Column: slotColumn, Values: values, Ours: true, Slots: found.Slots,
			Label: label.Keys(l.config.shownSlots(keys, values)...),
		}
	})
	t.call.Names = keys
	return t
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
