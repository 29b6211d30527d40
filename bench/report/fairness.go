package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/txlock/txlock/bench/results"
)

func (x *index) fairnessSection() (s section, err error) {
	const id, title = "fairness", "Does everybody get it?"
	main, found := x.main(results.AtOnce)
	if !found {
		main, found = x.main(results.AfterNext)
	}
	if !found {
		return unmeasured(id, title), nil
	}
	s = section{ID: id, Title: title, Text: []string{fmt.Sprintf(
		"Measured with %s, who ask again %s. Right and low is good: all get the lock equally often, and nobody waits "+
			"for long.",
		main.in(), main.rejoin)}}
	t := &table{Head: figures("Jain's index", "longest wait", "inversions per lock", "displacement")}
	plot := scatter{
		title: "How equal, and how long the unluckiest waited",
		xAxis: "Jain's index: 1 is equal, near 0 is that one has all",
		yAxis: "longest wait", xStep: 0.2, yTick: tickTime,
		caption: "Names that would cover others are left out here; the table has all.",
	}
	all := x.contended(main)
	slices.SortStableFunc(all, func(a, b contended) int {
		return cmp.Or(-cmp.Compare(a.jain, b.jain), cmp.Compare(a.longestWait, b.longestWait))
	})
	var names []string
	for _, c := range all {
		names = append(names, c.contestant)
		if c.jain > 0 && c.longestWait > 0 {
			plot.dots = append(plot.dots, dot{c.contestant, x.group(c.contestant), c.jain, float64(c.longestWait)})
		}
		cells := figures(jain(c.jain), duration(c.longestWait),
			fmt.Sprintf("%.2f", c.inversions), fmt.Sprintf("%.2f", c.displacement))
		t.Rows = append(t.Rows, x.row(c.contestant, cells...))
	}
	var b block
	if len(plot.dots) > 0 {
		f, err := plot.figure()
		if err != nil {
			return s, err
		}
		b.Figures = []figure{f}
		if b.Legend, err = legend(x.present(names)); err != nil {
			return s, err
		}
	}
	s.Blocks = []block{b, {
		Text: "An inversion is a pair that entered in another order than it asked in. The displacement is how many " +
			"places one " +
			"is before or after one's turn, on average. The longest wait counts those who still waited at the end.",
		Table: t, Folded: "Order and waiting, all contestants",
	}}
	return s, nil
}
