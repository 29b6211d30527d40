package txlock

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// sharedSlots adds to the error of a deadlock that a key of this session and one of another in it
// share a slot: so two sessions can meet that have no key in common. A key that both sides have
// needs no such word, and a hidden one gets none. Held are keys that the session held before.
func sharedSlots(err error, request dialects.Request, held []string) error {
	var deadlock dialects.DeadlockError
	if request.Slots == 0 || !errors.As(err, &deadlock) {
		return err
	}
	ours, theirs := slices.Concat(request.Keys, held), label.WholeKeys(deadlock.Shown)
	for _, our := range ours {
		if strings.HasPrefix(our, label.HiddenPrefix) || slices.Contains(theirs, our) {
			continue
		}
		slot := dialects.SlotOf(our, request.Slots)
		for _, their := range theirs {
			if dialects.SlotOf(their, request.Slots) == slot && !slices.Contains(ours, their) {
				return fmt.Errorf("%w; keys %q and %q share slot %d, so they exclude each other: name all keys of a "+
					"transaction in one Mutex, or lock rows", err, our, their, slot)
			}
		}
	}
	return err
}

// heldKeys are the keys of the slots that the session holds of the table of request.
func (s *session[Tx]) heldKeys(request dialects.Request) (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for row, held := range s.held {
		if row.table == request.Table {
			keys = append(keys, held.keys...)
		}
	}
	return keys
}
