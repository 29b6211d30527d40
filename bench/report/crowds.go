package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// crowd summarises a crowd over its rounds.
type crowd struct {
	results.Crowd
	hot              float64 // entries of the key that all want, in a second
	p50, p99         time.Duration
	cut              bool
	busy, open       int
	overlaps, failed int
}

func sumUpCrowd(c results.Crowd) crowd {
	s := crowd{Crowd: c}
	var hot, p50, p99 []float64
	for _, r := range c.Rounds {
		if r.Took > 0 {
			hot = append(hot, float64(r.Hot)/r.Took.Seconds())
		}
		p50, p99 = append(p50, float64(r.FreeP50)), append(p99, float64(r.FreeP99))
		s.cut = s.cut || r.Cut
		s.busy, s.open = max(s.busy, r.Busy), max(s.open, r.Open)
		s.overlaps += r.Overlaps
		s.failed += r.Failed
	}
	s.hot = results.Median(hot).Center
	s.p50 = time.Duration(results.Median(p50).Center)
	s.p99 = time.Duration(results.Median(p99).Center)
	return s
}

// crowds are the crowds in a process with few connections, the most callers last.
func (x *index) crowds() (all []crowd) {
	least := 0
	for _, c := range x.Crowds {
		if least == 0 || c.Connections < least {
			least = c.Connections
		}
	}
	for _, c := range x.Crowds {
		if c.Connections == least {
			all = append(all, sumUpCrowd(c))
		}
	}
	slices.SortStableFunc(all, func(a, b crowd) int { return cmp.Compare(a.Callers, b.Callers) })
	return all
}

// largest are the crowds with the most callers.
func largest(all []crowd) []crowd {
	if len(all) == 0 {
		return nil
	}
	most := all[len(all)-1].Callers
	return slices.DeleteFunc(slices.Clone(all), func(c crowd) bool { return c.Callers != most })
}

func (x *index) crowdsSection() (s section, err error) {
	const id, title = "crowds", "A crowd in one process"
	all := x.crowds()
	if len(all) == 0 {
		return unmeasured(id, title), nil
	}
	most := largest(all)
	first := most[0]
	s = section{ID: id, Title: title, Text: []string{fmt.Sprintf(
		"Up to %d callers of one process want the same key, and hold it for %s. The process may use %d connections. "+
			"One more caller wants another key, which is free, every 5 ms on average. Where each waiter holds a "+
			"connection, that caller waits for the pool, behind all the others.",
		first.Callers, round(first.Hold), first.Connections)}}
	for _, part := range []func([]crowd) (block, error){x.freeKeyBlock, x.freeKeyPanels, x.busyBlock} {
		b, err := part(all)
		if err != nil {
			return s, err
		}
		if len(b.Figures) > 0 {
			s.Blocks = append(s.Blocks, b)
		}
	}
	s.Blocks = append(s.Blocks, block{
		Table: x.crowdsTable(all), Folded: "All figures",
		Text: "Busy sessions are in a transaction, run a statement or have an advisory lock, the free key's among " +
			"them: the most that were seen. A holder of GET_LOCK does not show. How often callers get the hot key is " +
			"compared with 64 sessions by hand on the same server.",
	})
	return s, nil
}

// freeKeyBlock is the wait for the free key beside the largest crowd.
func (x *index) freeKeyBlock(all []crowd) (b block, err error) {
	most := largest(all)
	chart := rowChart{
		title: fmt.Sprintf("A free key beside %d callers of another", most[0].Callers),
		axis:  "wait for the free key, logarithmic",
		caption: "The mark is the median, the line goes to the 99th percentile. Left is better. A \">\" is a wait " +
			"that the end of the run cut off.",
		scale: func(axis *plot.Axis, values []float64) { logarithmic(axis, values, tickTime) },
	}
	var names []string
	for _, c := range most {
		if c.p50 <= 0 {
			continue
		}
		names = append(names, c.Contestant)
		times := x.times(c.Contestant, c.p50, c.p99)
		if c.cut && c.p50 > time.Second/10 {
			times.note = "> " + times.note
		}
		chart.rows = append(chart.rows, times)
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

// freeKeyPanels show the wait for the free key against the number of callers, for each database.
func (x *index) freeKeyPanels(all []crowd) (b block, err error) {
	var charts []lineChart
	var xs, ys []float64
	sizes := make(map[int]bool)
	for _, server := range contest.Servers {
		chart := lineChart{
			title:   fmt.Sprintf("A free key against the number of callers of another: %s", server),
			heading: string(server), xAxis: "callers of the hot key", yAxis: "free key", yTick: tickTime,
		}
		for _, c := range all {
			if x.contestants[c.Contestant].Server != string(server) || !server.SQL() || c.p50 <= 0 ||
				x.group(c.Contestant) == contest.InProcess {
				continue
			}
			sizes[c.Callers] = true
			name := within(server, c.Contestant)
			i := slices.IndexFunc(chart.lines, func(l line) bool { return l.name == name })
			if i < 0 {
				i, chart.lines = len(chart.lines), append(chart.lines, line{name: name, group: x.group(c.Contestant)})
				if strings.HasSuffix(name, ", no queue") {
					chart.lines[i].dashes = []vg.Length{7, 3}
				}
			}
			chart.lines[i].points = append(chart.lines[i].points, point{x: float64(c.Callers), y: float64(c.p50)})
			xs, ys = append(xs, float64(c.Callers)), append(ys, float64(c.p50))
		}
		if len(chart.lines) > 0 {
			charts = append(charts, chart)
		}
	}
	if len(sizes) < 2 {
		return b, nil
	}
	b = block{Heading: "More callers", Text: "The median wait for the free key.", Beside: true}
	for _, chart := range charts {
		chart.xs, chart.ys = xs, ys
		f, err := chart.figure()
		if err != nil {
			return b, err
		}
		b.Figures = append(b.Figures, f)
	}
	return b, nil
}

// busyBlock is the number of sessions that the largest crowd takes.
func (x *index) busyBlock(all []crowd) (b block, err error) {
	most := largest(all)
	chart := rowChart{
		title: fmt.Sprintf("Sessions at the server beside %d callers", most[0].Callers), bars: true,
		axis:    "busy sessions of a database, or open connections",
		caption: "Left is better: what is not taken is left to the rest of the program.",
		scale: func(axis *plot.Axis, values []float64) {
			high := slices.Max(values)
			linear(axis, 0, high*1.02, stepFor(high), tick)
		},
	}
	for _, c := range most {
		sessions := c.busy
		if sessions == 0 {
			sessions = c.open
		}
		if sessions > 0 && x.group(c.Contestant) != contest.InProcess {
			chart.rows = append(chart.rows, row{
				name: c.Contestant, group: x.group(c.Contestant), value: float64(sessions), note: count(sessions),
			})
		}
	}
	if len(chart.rows) == 0 {
		return b, nil
	}
	slices.SortFunc(chart.rows, ascending)
	f, err := chart.figure()
	return block{Heading: "Sessions", Figures: []figure{f}}, err
}

func (x *index) crowdsTable(all []crowd) *table {
	t := &table{Head: figures("callers", "free key p50", "p99", "hot key, locks/s", "to 64 sessions by hand",
		"busy sessions", "connections", "overlaps", "failed")}
	for _, c := range slices.Backward(all) {
		toOwn := nothing
		if own := x.ownSessions(c.Contestant); own > 0 {
			toOwn = factor(c.hot / own)
		}
		busy := nothing
		if c.busy > 0 {
			busy = count(c.busy)
		}
		t.Rows = append(t.Rows, x.row(c.Contestant, append(figures(count(c.Callers), c.free(c.p50), c.free(c.p99),
			number(c.hot), toOwn, busy, count(c.open)), bad(c.overlaps), bad(c.failed))...))
	}
	return t
}

// free formats the wait for the free key.
func (c crowd) free(d time.Duration) string {
	if c.cut && d > time.Second/10 {
		return "> " + duration(d)
	}
	return duration(d)
}

// ownSessions is how often 64 sessions by hand, one for each caller, got the hot key in a second,
// on the server of a contestant.
func (x *index) ownSessions(of string) (hot float64) {
	for _, c := range x.Crowds {
		same := x.contestants[c.Contestant].Server == x.contestants[of].Server
		if same && x.group(c.Contestant) == contest.Floor && c.Connections > c.Callers {
			hot = sumUpCrowd(c).hot
		}
	}
	return hot
}

// crowdFinding is the wait for a free key with the default queue, beside that without a queue.
func (x *index) crowdFinding() (finding, bool) {
	most := largest(x.crowds())
	at := func(name string) crowd {
		for _, c := range most {
			if c.Contestant == name {
				return c
			}
		}
		return crowd{}
	}
	for _, c := range most {
		without := at(c.Contestant + ", no queue")
		if x.group(c.Contestant) == contest.TxLock && c.p50 > 0 && without.p50 > 0 {
			return finding{duration(c.p50), fmt.Sprintf("for a free key beside %d callers of another, in a process "+
				"with %d connections (%s); without a queue in the process %s", c.Callers, c.Connections,
				c.Contestant, without.free(without.p50))}, true
		}
	}
	return finding{}, false
}
