package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/plot"

	"github.com/txlock/txlock/bench/results"
)

func (x *index) contendedSection() (s section, err error) {
	const id, title = "contended", "Everybody wants the same one"
	if len(x.Contended) == 0 {
		return unmeasured(id, title), nil
	}
	s = section{ID: id, Title: title, Text: []string{
		"Several processes want one key. A hand-off is from the moment the work of one holder has ended to the " +
			"moment the work of " +
			"the next begins. It is what every one of those who wait has to wait for, as many times as there are " +
			"others before it. Unless " +
			"it says otherwise, one who has released asks again only when another one is inside: so each hand-off " +
			"goes to somebody who was waiting.",
	}}
	for _, part := range []func() ([]block, error){x.handOffBlocks, x.panelBlocks, x.atOnceBlocks, x.contendedTables} {
		blocks, err := part()
		if err != nil {
			return s, err
		}
		s.Blocks = append(s.Blocks, blocks...)
	}
	return s, nil
}

// in describes the setting of a measurement.
func (s setting) in() string {
	if s.hold == 0 {
		return fmt.Sprintf("%d contenders, each releases as soon as it is inside", s.contenders)
	}
	return fmt.Sprintf("%d contenders, each holds it for %s", s.contenders, round(s.hold))
}

// handOffBlocks show the hand-off and the utilisation of all contestants under the main setting.
func (x *index) handOffBlocks() ([]block, error) {
	main, found := x.main(results.AfterNext)
	if !found {
		return nil, nil
	}
	handOff := rowChart{
		title: "Hand-off: " + main.in(), axis: "hand-off, logarithmic",
		caption: "The mark is the p50, the line goes to the p99. Left is better. A \">\" is a hand-off that the end " +
			"of the run cut off. What lets several " +
			"work at a time has no hand-off.",
		scale: func(axis *plot.Axis, values []float64) { logarithmic(axis, values, tickTime) },
	}
	busy := rowChart{
		title: "Utilisation: " + main.in(), axis: "share of the time that the lock was held", bars: true,
		caption: "What is missing to 100 % is time in which nobody had the lock, and no work was done, mostly while " +
			"others wanted it.",
		scale: percentages,
	}
	var names []string
	for _, c := range x.contended(main) {
		names = append(names, c.contestant)
		if c.p50 > 0 {
			times := x.times(c.contestant, c.p50, c.p99)
			times.note = c.handOff(c.p50)
			handOff.rows = append(handOff.rows, times)
		}
		if c.utilisation > 0 {
			busy.rows = append(busy.rows, row{
				name: c.contestant, group: x.group(c.contestant), value: c.utilisation, note: share(c.utilisation),
			})
		}
	}
	slices.SortFunc(handOff.rows, ascending)
	slices.SortFunc(busy.rows, descending)
	keys, err := legend(x.present(names))
	if err != nil {
		return nil, err
	}
	blocks := []block{{Legend: keys}}
	for _, chart := range []rowChart{handOff, busy} {
		if len(chart.rows) == 0 {
			continue
		}
		f, err := chart.figure()
		if err != nil {
			return nil, err
		}
		blocks[0].Figures = append(blocks[0].Figures, f)
	}
	return blocks, nil
}

func percentages(axis *plot.Axis, _ []float64) {
	linear(axis, 0, 1, 0.2, func(x float64) string { return fmt.Sprintf("%.0f %%", 100*x) })
}

// atOnceBlocks show the throughput and the fairness where contenders ask again at once.
func (x *index) atOnceBlocks() (blocks []block, err error) {
	main, _ := x.main(results.AtOnce)
	for i, setting := range x.settings(results.AtOnce) {
		t := &table{Head: figures("locks/s", "Jain's index", "utilisation", "longest wait", "overlaps")}
		all := x.contended(setting)
		slices.SortStableFunc(all, func(a, b contended) int { return cmp.Compare(b.perSecond, a.perSecond) })
		for _, c := range all {
			cells := figures(number(c.perSecond), jain(c.jain), share(c.utilisation), duration(c.longestWait))
			t.Rows = append(t.Rows, x.row(c.contestant, append(cells, bad(c.overlaps))...))
		}
		b := block{Table: t, Folded: "Asking again at once: " + setting.in(), Open: setting == main}
		if i == 0 {
			b.Heading = "When everybody asks again at once"
			b.Text = "Who has released asks again immediately, as a tight loop does. A lock without a queue may then " +
				"go back to " +
				"whom it came from: its throughput is good at the price of the others, which Jain's index tells (1: " +
				"all have as much)."
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// contendedTables have all figures where contenders ask again after the next one has entered.
func (x *index) contendedTables() (blocks []block, err error) {
	for i, setting := range x.settings(results.AfterNext) {
		t := &table{Head: figures(
			"hand-off p50", "p99", "locks/s", "utilisation", "server CPU per lock", "connections", "overlaps", "failed",
		)}
		all := x.contended(setting)
		slices.SortStableFunc(all, func(a, b contended) int { return cmp.Compare(orLast(a.p50), orLast(b.p50)) })
		for _, c := range all {
			cells := figures(c.handOff(c.p50), c.handOff(c.p99), number(c.perSecond), share(c.utilisation),
				duration(c.serverCPU),
				count(c.connections))
			t.Rows = append(t.Rows, x.row(c.contestant, append(cells, bad(c.overlaps), bad(c.failed))...))
		}
		b := block{Table: t, Folded: setting.in()}
		if i == 0 {
			b.Heading = "All figures"
			b.Text = "Overlaps are the times that one was inside while another was: anything but 0 is a lock that " +
				"does not lock."
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// orLast sorts what was not measured last.
func orLast(d time.Duration) time.Duration {
	if d <= 0 {
		return math.MaxInt64
	}
	return d
}

// bad is a count that should be 0.
func bad(n int) cell { return cell{Text: count(n), Alarm: n > 0} }
