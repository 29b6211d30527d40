package txlock

import (
	"context"
	"slices"
	"strconv"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// slots are rows of the lock table, which keys hash to once the number of slots is known.
type slots[Tx any] struct {
	*Locker[Tx] // in whose lines callers wait
	keys        []string
}

func (s *slots[Tx]) String() string { return nameOf(s.keys) }
func (s *slots[Tx]) call() Call     { return Call{Names: s.keys} }

func (s *slots[Tx]) request(ctx context.Context, connected bool) (dialects.Request, error) {
	found, err := s.find(ctx, connected)
	if err != nil {
		return dialects.Request{}, err
	}
	values := slotsOf(s.keys, found.Slots)
	return dialects.Request{
		Table: found.Name, Column: slotColumn, Values: values, Ours: true, Slots: found.Slots,
		Label: label.Keys(s.config.shownSlots(s.keys, values)...),
	}, nil
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
