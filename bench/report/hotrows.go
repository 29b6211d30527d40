package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// hotRow summarises the sales of one contestant over its rounds.
type hotRow struct {
	results.HotRow
	results.Interval // sales in a second
	p50, p99         time.Duration
	complaint        string
	failed           int
}

func sumUpHotRow(h results.HotRow) hotRow {
	s := hotRow{HotRow: h}
	var rates, p50, p99 []float64
	for _, r := range h.Rounds {
		if r.Took > 0 {
			rates = append(rates, float64(r.Sold)/r.Took.Seconds())
		}
		p50, p99 = append(p50, float64(r.P50)), append(p99, float64(r.P99))
		s.complaint = cmp.Or(s.complaint, r.Complaint)
		s.failed += r.Failed
	}
	s.Interval = results.Median(rates)
	s.p50 = time.Duration(results.Median(p50).Center)
	s.p99 = time.Duration(results.Median(p99).Center)
	return s
}

// salesBy are the sales with one number of callers, the most sales first.
func salesBy(callers int, of []results.HotRow) (all []hotRow) {
	for _, h := range of {
		if h.Callers == callers && len(h.Rounds) > 0 {
			all = append(all, sumUpHotRow(h))
		}
	}
	slices.SortStableFunc(all, func(a, b hotRow) int { return cmp.Compare(b.Center, a.Center) })
	return all
}

// buyers are the measured numbers of callers, the largest first.
func (x *index) buyers() (sizes []int) {
	for _, h := range x.HotRows {
		if !slices.Contains(sizes, h.Callers) {
			sizes = append(sizes, h.Callers)
		}
	}
	slices.Sort(sizes)
	slices.Reverse(sizes)
	return sizes
}

func (x *index) hotRowsSection() (s section, err error) {
	const id, title = "hot-rows", "Everybody buys the same article"
	if len(x.HotRows) == 0 {
		return unmeasured(id, title), nil
	}
	s = section{ID: id, Title: title, Text: []string{
		"The callers of one process sell one piece each of the same article: one is taken from the row of its stock, " +
			"and a row is written for the sale. The database flushes each commit. Afterwards stock and sales are " +
			"compared with what was confirmed. A sale under a lock ends its transaction before the next one begins, " +
			"so the flush is the limit, unless sales share it.",
	}}
	for i, callers := range x.buyers() {
		b, t, err := x.salesBlock(callersOf(callers), salesBy(callers, x.HotRows))
		if err != nil {
			return s, err
		}
		if i == 0 {
			s.Blocks = append(s.Blocks, b)
		}
		s.Blocks = append(s.Blocks, block{Table: t, Folded: fmt.Sprintf("All figures, %s", callersOf(callers))})
	}
	return s, nil
}

func callersOf(n int) string {
	if n == 1 {
		return "1 caller"
	}
	return fmt.Sprintf("%d callers", n)
}

// salesBlock is the chart and the table of sales by those that who names.
func (x *index) salesBlock(who string, all []hotRow) (b block, t *table, err error) {
	chart := rowChart{
		title: "Sales of one article by " + who, axis: "sales per second, logarithmic",
		caption: "Red: stock and sales did not agree with what was confirmed. Right is better.",
		scale:   func(axis *plot.Axis, values []float64) { logarithmic(axis, values, tick) },
	}
	t = &table{Head: append(figures("sales/s", "to the transaction by hand", "p50", "p99", "failed"),
		cell{Text: "stock and sales", Long: true})}
	var names []string
	for _, h := range all {
		verdict := cell{Text: "right", Long: true}
		if h.complaint != "" {
			verdict = cell{Text: h.complaint, Alarm: true}
		}
		t.Rows = append(t.Rows, x.row(h.Contestant, append(figures(number(h.Center), x.toHand(h, all), duration(h.p50),
			duration(h.p99)), bad(h.failed), verdict)...))
		if h.Center <= 0 {
			continue
		}
		names = append(names, h.Contestant)
		r := row{name: h.Contestant, group: x.group(h.Contestant), value: h.Center, note: number(h.Center)}
		if h.complaint != "" {
			r.color, r.note = alarm, r.note+" – wrong"
		}
		chart.rows = append(chart.rows, r)
	}
	if len(names) == 0 {
		return b, t, nil
	}
	if b.Legend, err = legend(x.present(names)); err != nil {
		return b, t, err
	}
	f, err := chart.figure()
	b.Figures = []figure{f}
	return b, t, err
}

// byHand is the name of the same transaction by hand on a server.
func byHand(server string) string { return "transaction by hand, " + server }

// toHand compares sales with those of the same transaction by hand on the same server.
func (x *index) toHand(h hotRow, all []hotRow) string {
	server := x.contestants[h.Contestant].Server
	if !contest.Server(server).SQL() || x.group(h.Contestant) == contest.InProcess {
		server = string(contest.PostgreSQL) // where such work is
	}
	for _, other := range all {
		if other.Contestant == byHand(server) && other.Center > 0 {
			return factor(h.Center / other.Center)
		}
	}
	return nothing
}

// hotRowFinding is the range of Combine beside the same transaction by hand.
func (x *index) hotRowFinding() (finding, bool) {
	sizes := x.buyers()
	if len(sizes) == 0 {
		return finding{}, false
	}
	all := salesBy(sizes[0], x.HotRows)
	var parts []string
	most := 0.0
	for _, h := range all {
		if strings.HasPrefix(h.Contestant, "txlock Combine") {
			if f := x.toHand(h, all); f != nothing && h.Center > 0 {
				parts = append(parts, fmt.Sprintf("%s %s", x.contestants[h.Contestant].Server, f))
				most = max(most, h.Center)
			}
		}
	}
	if most == 0 {
		return finding{}, false
	}
	return finding{digits(most) + "/s", fmt.Sprintf("sales of one article by %s with Combine; beside the same "+
		"transaction by hand: %s", callersOf(sizes[0]), strings.Join(parts, ", "))}, true
}
