package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"gonum.org/v1/plot"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

func (x *index) networkSection() (s section, err error) {
	const id, title = "network", "With a network in between"
	far := x.Network
	if len(far.Uncontended) == 0 {
		return unmeasured(id, title), nil
	}
	s = section{ID: id, Title: title, Text: []string{fmt.Sprintf(
		"The same again, with a round trip of %s between all clients and all servers. A proxy on this machine delays "+
			"the data, and adds some of its own. Here a lock costs its round trips, and little else shows.",
		round(2*far.Delay))}}
	free, err := x.farTimes()
	if err != nil {
		return s, err
	}
	s.Blocks = append(s.Blocks, free)
	handOffs, err := x.farHandOffs()
	if err != nil {
		return s, err
	}
	if len(handOffs.Figures) > 0 {
		s.Blocks = append(s.Blocks, handOffs)
	}
	s.Blocks = append(s.Blocks, block{Table: x.networkTable(), Folded: "All figures"})
	if all := x.farSales(); len(all) > 0 {
		sales, t, err := x.salesBlock(x.farBuyers(all[0]), all)
		if err != nil {
			return s, err
		}
		s.Blocks = append(s.Blocks, sales, block{Table: t, Folded: "All figures of the sales"})
	}
	return s, nil
}

// farSales are the sales of one article over a network.
func (x *index) farSales() []hotRow {
	if len(x.Network.HotRows) == 0 {
		return nil
	}
	return salesBy(x.Network.HotRows[0].Callers, x.Network.HotRows)
}

func (x *index) farBuyers(h hotRow) string {
	trip := round(2 * x.Network.Delay)
	return fmt.Sprintf("%d processes with %s each, %s away", h.Processes, callersOf(h.Callers), trip)
}

// farTimes is the chart of uncontended cycles.
func (x *index) farTimes() (b block, err error) {
	chart := rowChart{
		title: fmt.Sprintf("Lock and unlock, uncontended, %s away", round(2*x.Network.Delay)),
		axis:  "one cycle, logarithmic",
		caption: "The mark is the median of all cycles (p50), the line goes to the 99th percentile (p99). Left is " +
			"better.",
		scale: func(axis *plot.Axis, values []float64) { logarithmic(axis, values, tickTime) },
	}
	var names []string
	for _, u := range x.Network.Uncontended {
		if u.P50 > 0 {
			names = append(names, u.Contestant)
			chart.rows = append(chart.rows, x.times(u.Contestant, u.P50, u.P99))
		}
	}
	if len(names) == 0 {
		return b, nil
	}
	slices.SortFunc(chart.rows, ascending)
	if b.Legend, err = legend(x.present(names)); err != nil {
		return b, err
	}
	f, err := chart.figure()
	b.Figures = []figure{f}
	return b, err
}

// farHandOffs is the chart of hand-offs.
func (x *index) farHandOffs() (b block, err error) {
	all := x.farContended()
	if len(all) == 0 {
		return b, nil
	}
	contenders := 0
	chart := rowChart{
		axis: "hand-off, logarithmic",
		caption: "The mark is the p50, the line goes to the p99. Left is better. A \">\" is a hand-off that the end " +
			"of the run cut off.",
		scale: func(axis *plot.Axis, values []float64) { logarithmic(axis, values, tickTime) },
	}
	for _, c := range all {
		if contenders = c.contenders; c.p50 > 0 {
			times := x.times(c.contestant, c.p50, c.p99)
			times.note = c.handOff(c.p50)
			chart.rows = append(chart.rows, times)
		}
	}
	if len(chart.rows) == 0 {
		return b, nil
	}
	chart.title = fmt.Sprintf("Hand-off with %d contenders, %s away", contenders, round(2*x.Network.Delay))
	slices.SortFunc(chart.rows, ascending)
	f, err := chart.figure()
	b.Figures = []figure{f}
	return b, err
}

// farContended are the contended runs over a network, with the most contenders.
func (x *index) farContended() (all []contended) {
	most := 0
	for _, c := range x.Network.Contended {
		most = max(most, c.Contenders)
	}
	for _, c := range x.Network.Contended {
		if c.Contenders == most && len(c.Rounds) > 0 {
			all = append(all, sumUp(c))
		}
	}
	return all
}

func (x *index) networkTable() *table {
	t := &table{Head: figures("p50", "p99", "round trips", "p50 without a network", "to its floor", "hand-off p50",
		"p99", "utilisation", "fair (Jain)")}
	handOffs := make(map[string]contended)
	for _, c := range x.farContended() {
		handOffs[c.contestant] = c
	}
	all := slices.SortedStableFunc(slices.Values(x.Network.Uncontended), func(a, b results.Uncontended) int {
		return cmp.Compare(orLast(a.P50), orLast(b.P50))
	})
	for _, u := range all {
		toFloor := nothing
		if floor := x.contestants[u.Contestant].Floor; floor != "" {
			toFloor = brief(compare(x.Network.Uncontended, u.Contestant, floor).Interval)
		}
		c := handOffs[u.Contestant]
		t.Rows = append(t.Rows, x.row(u.Contestant, figures(duration(u.P50), duration(u.P99), number(u.RoundTrips),
			duration(x.uncontended[u.Contestant].P50), toFloor, c.handOff(c.p50), c.handOff(c.p99),
			share(c.utilisation), jain(c.jain))...))
	}
	return t
}

// networkFinding is the time of txlock's fastest lock over a network.
func (x *index) networkFinding() (finding, bool) {
	var mine results.Uncontended
	for _, u := range x.Network.Uncontended {
		if x.group(u.Contestant) == contest.TxLock && u.P50 > 0 && (mine.P50 == 0 || u.P50 < mine.P50) {
			mine = u
		}
	}
	if mine.P50 == 0 {
		return finding{}, false
	}
	trip := 2 * x.Network.Delay
	return finding{duration(mine.P50), fmt.Sprintf("for lock and unlock with a round trip of %s (%s): %s times "+
		"that", round(trip), mine.Contestant,
		digits(float64(mine.P50)/float64(max(trip, time.Nanosecond))))}, true
}
