package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gonum.org/v1/plot"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

func (x *index) handOffsSection() (s section, err error) {
	const id, title = "hand-offs", "As fast as one process can"
	if len(x.HandOffs) == 0 {
		return unmeasured(id, title), nil
	}
	s = section{ID: id, Title: title, Text: []string{fmt.Sprintf(
		"%d goroutines of one process lock and unlock one key, and do nothing else. Each may have a connection. The "+
			"mutex of the process is the limit: it excludes nobody else.", x.HandOffs[0].Goroutines)}}
	chart := rowChart{
		title: "Lock and unlock by goroutines of one process", axis: "locks per second, logarithmic",
		caption: "Right is better.",
		scale:   func(axis *plot.Axis, values []float64) { logarithmic(axis, values, tick) },
	}
	t := &table{Head: figures("locks/s", "overlaps", "failed")}
	all := slices.SortedStableFunc(slices.Values(x.HandOffs), func(a, b results.HandOff) int {
		return cmp.Compare(results.Median(b.PerSecond).Center, results.Median(a.PerSecond).Center)
	})
	var names []string
	for _, h := range all {
		i := results.Median(h.PerSecond)
		t.Rows = append(t.Rows, x.row(h.Contestant, cell{Text: number(i.Center)}, bad(h.Overlaps), bad(h.Failed)))
		if i.Center <= 0 {
			continue
		}
		names = append(names, h.Contestant)
		r := row{name: h.Contestant, group: x.group(h.Contestant), value: i.Center, note: number(i.Center)}
		if i.Lo > 0 && i.Hi > i.Lo {
			r.low, r.high = i.Lo, i.Hi
		}
		chart.rows = append(chart.rows, r)
	}
	if len(names) > 0 {
		keys, err := legend(x.present(names))
		if err != nil {
			return s, err
		}
		f, err := chart.figure()
		if err != nil {
			return s, err
		}
		s.Blocks = append(s.Blocks, block{Legend: keys, Figures: []figure{f}})
	}
	s.Blocks = append(s.Blocks, block{Table: t, Folded: "All figures"})
	return s, nil
}

// handOffsFinding compares txlock's fastest lock in one process with the fastest of the others that
// exclude other processes as well.
func (x *index) handOffsFinding() (finding, bool) {
	var mine, other results.HandOff
	rate := func(h results.HandOff) float64 { return results.Median(h.PerSecond).Center }
	for _, h := range x.HandOffs {
		switch group := x.group(h.Contestant); {
		case group == contest.TxLock && rate(h) > rate(mine):
			mine = h
		case group != contest.TxLock && group != contest.InProcess && rate(h) > rate(other):
			other = h
		}
	}
	if rate(mine) == 0 || rate(other) == 0 {
		return finding{}, false
	}
	return finding{digits(rate(mine)), fmt.Sprintf("locks a second by %d goroutines of one process (%s); %s does %s",
		mine.Goroutines, strings.TrimPrefix(mine.Contestant, "txlock "), other.Contestant, digits(rate(other)))}, true
}
