package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// within is a contestant's name in a plot of one server, without the server's name.
func within(server contest.Server, name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(name, ", "+string(server)), " on "+string(server))
}

// panelBlocks show the hand-offs against the number of contenders, for each hold time, if several
// numbers were measured.
func (x *index) panelBlocks() (blocks []block, err error) {
	main, _ := x.main(results.AfterNext)
	for _, most := range x.settings(results.AfterNext) {
		var fewer []setting
		for _, s := range x.settings(results.AfterNext) {
			if s.hold == most.hold && s.contenders <= most.contenders {
				fewer = append(fewer, s)
			}
		}
		largest := !slices.ContainsFunc(x.settings(results.AfterNext), func(s setting) bool {
			return s.hold == most.hold && s.contenders > most.contenders
		})
		if !largest || len(fewer) < 2 {
			continue
		}
		b := block{Beside: true, Folded: "Held for " + round(most.hold), Open: most == main}
		if b.Figures, err = x.panels(most.hold, x.contended(most)); err != nil {
			return nil, err
		}
		blocks = append(blocks, b)
	}
	if len(blocks) > 0 {
		blocks[0].Heading = "More contenders"
		blocks[0].Text = "Solid: p50. Dashed and pale: p99. Of each group only the best of that server is shown, and " +
			"of txlock " +
			"also where it competes with other servers. All panels have the same axes."
	}
	return blocks, nil
}

// panels are one panel for each database, and one for all other servers. They show the contestants
// that do best with the most contenders.
func (x *index) panels(hold time.Duration, most []contended) (all []figure, err error) {
	slices.SortStableFunc(most, func(a, b contended) int { return cmp.Compare(a.p50, b.p50) })
	most = slices.DeleteFunc(most, func(c contended) bool { return c.p50 <= 0 })
	var charts []lineChart
	var xs, ys []float64
	databases := slices.DeleteFunc(slices.Clone(contest.Servers), func(s contest.Server) bool { return !s.SQL() })
	for _, server := range append(databases, "") {
		chart := lineChart{xAxis: "contenders", yAxis: "hand-off", yTick: tickTime, heading: string(server)}
		if server == "" {
			chart.heading = "Not a database"
		}
		chart.title = fmt.Sprintf("Hand-off against the number of contenders, hold %s: %s", round(hold), chart.heading)
		others := 0
		for _, name := range x.bestOn(server, most) {
			l := x.handOffLine(name, hold)
			if server != "" {
				l.name = within(server, l.name)
			}
			if l.group != contest.TxLock {
				others++
			}
			chart.lines = append(chart.lines, l)
			for _, p := range l.points {
				xs, ys = append(xs, p.x), append(ys, p.y, p.second)
			}
		}
		if others > 0 || server != "" && len(chart.lines) > 0 {
			charts = append(charts, chart)
		}
	}
	for _, chart := range charts {
		chart.xs, chart.ys = xs, ys
		f, err := chart.figure()
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// bestOn are the best of each group on a database. For no database, they are the best on the other
// servers, and the best of txlock anywhere.
func (x *index) bestOn(server contest.Server, sorted []contended) (names []string) {
	groups := make(map[contest.Group]bool)
	for _, c := range sorted {
		group, on := x.group(c.contestant), contest.Server(x.contestants[c.contestant].Server)
		fits := on == server || server == "" && (!on.SQL() || group == contest.TxLock)
		if fits && !groups[group] {
			groups[group] = true
			names = append(names, c.contestant)
		}
	}
	return names
}

func (x *index) handOffLine(name string, hold time.Duration) line {
	l := line{name: name, group: x.group(name)}
	for _, c := range x.Contended {
		if c.Contestant != name || c.Hold != hold || c.Rejoin != results.AfterNext || len(c.Rounds) == 0 {
			continue
		}
		if s := sumUp(c); s.p50 > 0 {
			l.points = append(l.points, point{float64(s.contenders), float64(s.p50), float64(s.p99)})
		}
	}
	slices.SortFunc(l.points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
	return l
}
