package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

func (x *index) manyKeysSection() (s section, err error) {
	const id, title = "many-keys", "Many keys"
	if len(x.ManyKeys) == 0 {
		return unmeasured(id, title), nil
	}
	first := x.ManyKeys[0]
	s = section{ID: id, Title: title, Text: []string{fmt.Sprintf(
		"%d contenders ask for keys that are not equally popular (Zipf's law), and hold each for %s. With one slot "+
			"all keys are one "+
			"lock; with many they are in each other's way only by chance.", first.Contenders, round(first.Hold))}}
	var figures []figure
	var xs, ys []float64
	for _, m := range x.ManyKeys {
		xs, ys = append(xs, float64(m.Keys)), append(ys, results.Median(m.PerSecond).Center)
	}
	for _, server := range contest.Servers {
		chart := lineChart{
			title: "Throughput against the number of keys: " + string(server), heading: string(server),
			xAxis: "keys", yAxis: "locks per second", yTick: tick, xs: xs, ys: ys, lines: x.keyLines(server),
		}
		if len(chart.lines) == 0 {
			continue
		}
		f, err := chart.figure()
		if err != nil {
			return s, err
		}
		figures = append(figures, f)
	}
	s.Blocks = []block{{Figures: figures, Beside: true}, {Table: x.manyKeysTable(), Folded: "All figures"}}
	return s, nil
}

// keyLines are the lines of a server, dashed for few slots.
func (x *index) keyLines(server contest.Server) (lines []line) {
	for _, m := range x.ManyKeys {
		median := results.Median(m.PerSecond).Center
		if contest.Server(x.contestants[m.Contestant].Server) != server || median <= 0 {
			continue
		}
		name := slotted(m, server)
		i := slices.IndexFunc(lines, func(l line) bool { return l.name == name })
		if i < 0 {
			l := line{name: name, group: x.group(m.Contestant)}
			switch {
			case m.Slots == 1:
				l.dashes = []vg.Length{2, 3}
			case m.Slots > 1 && m.Slots <= 1000:
				l.dashes = []vg.Length{7, 3}
			}
			i, lines = len(lines), append(lines, l)
		}
		lines[i].points = append(lines[i].points, point{x: float64(m.Keys), y: median})
	}
	for _, l := range lines {
		slices.SortFunc(l.points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
	}
	return lines
}

// slotted is the name of a contestant with its number of slots, for a plot or table of one server.
func slotted(m results.ManyKeys, server contest.Server) string {
	name, _, _ := strings.Cut(m.Contestant, ", slots")
	name = within(server, name)
	switch m.Slots {
	case 0:
		return name
	case 1:
		return name + ": 1 slot"
	default:
		return fmt.Sprintf("%s: %s slots", name, count(m.Slots))
	}
}

func (x *index) manyKeysTable() *table {
	var keys []int
	type combination struct {
		contestant string
		slots      int
	}
	var combinations []combination
	found := make(map[combination]map[int]float64)
	for _, m := range x.ManyKeys {
		c := combination{m.Contestant, m.Slots}
		if found[c] == nil {
			found[c] = make(map[int]float64)
			combinations = append(combinations, c)
		}
		found[c][m.Keys] = results.Median(m.PerSecond).Center
		if !slices.Contains(keys, m.Keys) {
			keys = append(keys, m.Keys)
		}
	}
	slices.Sort(keys)
	t := &table{}
	for _, k := range keys {
		t.Head = append(t.Head, cell{Text: count(k) + " keys"})
	}
	for _, c := range combinations {
		row := x.row(c.contestant)
		row.Name = slotted(results.ManyKeys{Contestant: c.contestant, Slots: c.slots}, "")
		for _, k := range keys {
			row.Cells = append(row.Cells, cell{Text: number(found[c][k])})
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
