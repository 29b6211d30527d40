package results

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Replace replaces the figures of one measurement with those of another run, and notes that in the
// settings.
func (r *Run) Replace(measurement string, with *Run) {
	switch measurement {
	case "uncontended":
		r.Uncontended = with.Uncontended
	case "turns":
		r.Turns = with.Turns
	case "contended":
		r.Contended = with.Contended
	case "keys":
		r.ManyKeys = with.ManyKeys
	case "orders":
		r.Orders = with.Orders
	case "faults":
		r.Faults = with.Faults
	case "network":
		r.Network = with.Network
	case "crowds":
		r.Crowds = with.Crowds
	case "hand-offs":
		r.HandOffs = with.HandOffs
	case "hot-rows":
		r.HotRows = with.HotRows
	}
	named := func(m Missing) bool { return strings.HasPrefix(m.Measurement, measurement) }
	r.Missing = slices.DeleteFunc(r.Missing, named)
	for _, m := range with.Missing {
		if named(m) {
			r.Missing = append(r.Missing, m)
		}
	}
	r.Settings = append(r.Settings, Setting{
		Name: measurement + ", measured anew", Value: fmt.Sprintf(
			"%s UTC, seed %d", with.Started.Format(time.DateTime), with.Seed),
	})
}
