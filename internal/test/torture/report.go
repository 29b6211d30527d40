package main

import (
	"cmp"
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
	Date         time.Time
	Version      string
	Duration     time.Duration
	Operations   int
	Acquisitions int
	Terms        int
	Inside       int // of one semaphore, at the most
	Works        int // that were to be done once, and were
	Updates      int // acknowledged Dos
	Unknown      int // Dos with an unknown outcome
	Overtaken    int
	Stalled      time.Duration // sum over the processes
	Refusals     refusals
	Damages      map[faultKind]*damage
	Violations   []violation
}

func newResult(s settings) *result {
	return &result{settings: s, Date: time.Now(), Refusals: refusals{}, Damages: map[faultKind]*damage{}}
}

func (r *result) count(e *epoch) {
	r.Operations += len(e.Operations)
	r.Stalled += e.unprovoked()
	r.Works += len(e.after.works)
	for _, o := range e.Operations {
		if o.Granted != 0 {
			r.Acquisitions++
			if o.Verb == verbLead {
				r.Terms++
			}
		}
		if !o.Verb.updates() {
			continue
		}
		switch o.Outcome {
		case done:
			r.Updates++
		case open, unknown:
			r.Unknown++
		}
	}
}

// switches is how often a pair has changed places.
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
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\t%v %s\n", r.Lock, r.Kind, r.Version)
	fmt.Fprintf(w, "date\t%s\n", r.Date.Format("2006-01-02 15:04 MST"))
	fmt.Fprintf(w, "seed\t%d\n", r.Seed)
	if r.Pair != "" {
		fmt.Fprintf(w, "switchovers, the primary is found by\t%d, %s\n", r.switches(), r.Pair)
	}
	fmt.Fprintf(w, "duration\t%v\n", r.Duration.Round(100*time.Millisecond))
	fmt.Fprintf(w, "terms of %d elections\t%d\n", elections, r.Terms)
	fmt.Fprintf(w, "holders of %d permits, at the most\t%d\n", permits, r.Inside)
	fmt.Fprintf(w, "works of Once\t%d\n", r.Works)
	fmt.Fprintf(w, "processes, goroutines in each, keys\t%d, %d, %d\n", r.Processes, r.Goroutines, r.Keys)
	fmt.Fprintf(w, "operations, acquisitions\t%d, %d\n", r.Operations, r.Acquisitions)
	fmt.Fprintf(w, "acknowledged updates, of unknown end\t%d, %d\n", r.Updates, r.Unknown)
	fmt.Fprintf(w, "a waiter was overtaken at most\t%d times\n", r.Overtaken)
	fmt.Fprintf(w, "processes not run by the machine\t%v\n", r.Stalled.Round(time.Millisecond))
	if len(r.Refusals) > 0 {
		fmt.Fprintf(w, "refused: the tables are not of that version\t%v\n", r.Refusals)
	}
	fmt.Fprintf(w, "violations\t%d\n", len(r.Violations))
	_ = w.Flush()
	if len(r.Damages) > 0 {
		fmt.Fprintln(out)
		r.printFaults(out)
	}
	fmt.Fprintln(out)
}

func (r *result) printFaults(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight|tabwriter.TabIndent)
	fmt.Fprintln(w, "fault\tcount\tlocks lost\trecovery p50\tp99\tlongest\theld on untold\t")
	all := &damage{Kind: "all"}
	for _, d := range slices.SortedFunc(maps.Values(r.Damages),
		func(a, b *damage) int { return cmp.Compare(a.Kind, b.Kind) }) {
		d.print(w)
		all.Count += d.Count
		all.Losses += d.Losses
		all.Recoveries = append(all.Recoveries, d.Recoveries...)
		all.Belief = max(all.Belief, d.Belief)
	}
	all.print(w)
	_ = w.Flush()
}

func (d *damage) print(out io.Writer) {
	fmt.Fprintf(out, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t\n", d.Kind, d.Count, d.Losses,
		milliseconds(d.quantile(0.5)), milliseconds(d.quantile(0.99)), milliseconds(d.quantile(1)),
		milliseconds(d.Belief))
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
