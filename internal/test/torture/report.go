package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"
)

// result is the result of a run.
type result struct {
	settings
	Version      string
	Duration     time.Duration
	Operations   int
	Acquisitions int
	Updates      int           // acknowledged ones
	Unknown      int           // updates with an unknown outcome
	Stalled      time.Duration // sum over the processes
	Damages      map[faultKind]*damage
	Violations   []violation
}

func (r *result) count(e *epoch) {
	r.Operations += len(e.Operations)
	r.Stalled += e.unprovoked()
	for _, o := range e.Operations {
		if o.Granted != 0 {
			r.Acquisitions++
		}
		switch {
		case !o.Verb.updates():
		case o.Outcome == done:
			r.Updates++
		case o.Outcome == open || o.Outcome == unknown:
			r.Unknown++
		}
	}
}

// switches is how often a cluster has changed places.
func (r *result) switches() (n int) {
	for _, kind := range switchKinds {
		if d := r.Damages[kind]; d != nil {
			n += d.Count
		}
	}
	return n
}

// print prints the result as a table.
func (r *result) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%v\t%s\n", r.Kind, r.Version)
	fmt.Fprintf(w, "seed\t%d\n", r.Seed)
	if r.Cluster != "" {
		fmt.Fprintf(w, "switchovers of %s\t%d\n", r.Cluster, r.switches())
	}
	fmt.Fprintf(w, "duration\t%v\n", r.Duration.Round(100*time.Millisecond))
	fmt.Fprintf(w, "operations, acquisitions\t%d, %d\n", r.Operations, r.Acquisitions)
	fmt.Fprintf(w, "acknowledged updates, of unknown end\t%d, %d\n", r.Updates, r.Unknown)
	fmt.Fprintf(w, "processes not run by the machine\t%v\n", r.Stalled.Round(time.Millisecond))
	fmt.Fprintf(w, "violations\t%d\n\n", len(r.Violations))
	_ = w.Flush()
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight|tabwriter.TabIndent)
	fmt.Fprintln(w, "fault\tcount\tlocks lost\trecovery p50\tp99\theld on untold\t")
	for _, kind := range slices.Sorted(maps.Keys(r.Damages)) {
		d := r.Damages[kind]
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\t\n", kind, d.Count, d.Losses, milliseconds(d.quantile(0.5)),
			milliseconds(d.quantile(0.99)), milliseconds(d.Belief))
	}
	_ = w.Flush()
}

func milliseconds(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// shown is how many operations of a violation are printed. The history has all of them.
const shown = 12

func (v *violation) print(out io.Writer, seed int64) {
	fmt.Fprintf(out, "VIOLATION of %q, seed %d: %s\n", v.Rule, seed, v.Text)
	for i, o := range v.Operations {
		if i == shown {
			fmt.Fprintf(out, "  … and %d more operations\n", len(v.Operations)-shown)
			break
		}
		fmt.Fprintf(out, "  %v\n", o)
	}
}
