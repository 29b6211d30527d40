package report

import (
	"fmt"
	"slices"

	"gonum.org/v1/plot"

	"github.com/txlock/txlock/bench/results"
)

func (x *index) ordersSection() (s section, err error) {
	const id, title = "orders", "The real job: a shop's orders"
	if len(x.Orders) == 0 {
		return unmeasured(id, title), nil
	}
	s = section{ID: id, Title: title, Text: []string{
		"Orders of a real shop are replayed by several processes, and the stock of each article is kept under its " +
			"lock. At the " +
			"end an audit says whether the books are right: no article sold twice, none lost.",
	}}
	var kinds []string
	for _, o := range x.Orders {
		if !slices.Contains(kinds, o.Articles) {
			kinds = append(kinds, o.Articles)
		}
	}
	for _, kind := range kinds {
		b, err := x.ordersBlock(kind)
		if err != nil {
			return s, err
		}
		s.Blocks = append(s.Blocks, b...)
	}
	return s, nil
}

var articles = map[string]string{
	"one": "Orders of one article", "several": "Orders of several articles", "all": "All orders",
}

func (x *index) ordersBlock(kind string) ([]block, error) {
	heading := articles[kind]
	if heading == "" {
		heading = "Orders: " + kind
	}
	chart := rowChart{
		title: heading, axis: "orders per second", bars: true,
		caption: "Green: the books were right after each replay. Red, and said so behind the bar: they were wrong. " +
			"Right is better.",
		scale: func(axis *plot.Axis, values []float64) {
			high := slices.Max(values)
			linear(axis, 0, high*1.02, stepFor(high), tick)
		},
	}
	for _, o := range x.Orders {
		perSecond, complaint := replayed(o)
		if o.Articles != kind || perSecond <= 0 {
			continue
		}
		r := row{
			name: o.Contestant, group: x.group(o.Contestant), value: perSecond, note: number(perSecond),
			color: right,
		}
		if complaint != "" {
			r.color, r.note = alarm, r.note+" – books wrong"
		}
		chart.rows = append(chart.rows, r)
	}
	if len(chart.rows) == 0 {
		return nil, nil
	}
	slices.SortFunc(chart.rows, descending)
	f, err := chart.figure()
	if err != nil {
		return nil, err
	}
	t := &table{Head: append(figures("orders/s", "books"), cell{Text: "what the audit found", Long: true})}
	for _, row := range chart.rows {
		i := slices.IndexFunc(x.Orders, func(o results.Orders) bool {
			return o.Contestant == row.name &&
				o.Articles == kind
		})
		_, complaint := replayed(x.Orders[i])
		verdict := cell{Text: "right"}
		if complaint != "" {
			verdict = cell{Text: "wrong", Alarm: true}
		}
		t.Rows = append(t.Rows, x.row(row.name, cell{Text: number(row.value)}, verdict,
			cell{Text: complaint, Long: true}))
	}
	return []block{{Figures: []figure{f}}, {Table: t, Folded: fmt.Sprintf("%s: what the audit found", heading)}}, nil
}

// replayed is the number of orders decided per second over all rounds, and the first complaint
// about the books.
func replayed(o results.Orders) (perSecond float64, complaint string) {
	var decided, seconds float64
	for _, r := range o.Rounds {
		decided += float64(r.Orders)
		seconds += r.Took.Seconds()
		if complaint == "" {
			complaint = r.Complaint
		}
	}
	if seconds > 0 {
		perSecond = decided / seconds
	}
	return perSecond, complaint
}
