// Package missing explains why a request locked fewer rows than it named.
package missing

import (
	"errors"
	"fmt"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/locktable"
)

// ErrRows says that a request locked fewer rows than it named.
var ErrRows = errors.New("rows missing")

// Rows explains ErrRows. Existing are the values of rows that exist.
func Rows(r dialects.Request, existing []string) error {
	exists := make(map[string]bool, len(existing))
	for _, text := range existing {
		exists[text] = true
	}
	if len(exists) >= len(r.Values) {
		if r.Try {
			return fmt.Errorf("%w: another session holds it", dialects.ErrNotAcquired)
		}
		return fmt.Errorf("%w: a row of %.100s changed or came while it was being locked", dialects.ErrNoRow, r.Table)
	}
	for _, value := range r.Values {
		switch {
		case exists[value.Text]:
		case r.Slots > 0:
			return locktable.NoSlot(r.Table, value.Text, r.Slots)
		default:
			return fmt.Errorf("%w: table %.100s has no row where %.100s is %.100q, or it is a row named twice",
				dialects.ErrNoRow, r.Table, r.Column, value.Text)
		}
	}
	return fmt.Errorf("%w: table %.100s", dialects.ErrNoRow, r.Table)
}
