package report

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	canvas "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// chart is a plot of times: a line for each contestant, and two logarithmic axes.
type chart struct {
	name, title, x string
	label          func(float64) string // of the values of x
	lines          []line
}

// line is the times of a contestant, in nanoseconds, by x.
type line struct {
	contestant results.Contestant
	points     plotter.XYs
}

// last is the time at the end of a line.
func (l line) last() float64 { return l.points[len(l.points)-1].Y }

// growth are the charts of what grows: the keys, the distance, and the contenders.
func (r *Report) growth() (charts []chart) {
	for _, by := range results.Axes {
		c := chart{name: strings.ReplaceAll(by, " ", "-"), title: "A free lock, by " + by, x: by, label: tick}
		if by == results.Distance {
			c.label = tickTime
		}
		for _, g := range r.Growth {
			if g.By == by {
				for _, p := range g.Points {
					c.add(r.contestants[g.Contestant], p.X, float64(p.P50))
				}
			}
		}
		charts = append(charts, c)
	}
	c := chart{name: "contenders", title: "A hand-off, by contenders for one key", x: "contenders", label: tick}
	for _, each := range r.Contended {
		if each.Rejoin == results.AfterNext {
			c.add(r.contestants[each.Contestant], float64(each.Contenders), float64(sumUpContended(each).p50))
		}
	}
	return slices.DeleteFunc(append(charts, c), func(c chart) bool { return len(c.lines) == 0 })
}

// pools is the chart of docs/pools.md: a free key beside the callers of another.
func (r *Report) pools() chart {
	c := chart{name: "pools", title: "A free key, by callers of another", x: "callers", label: tick}
	for _, each := range r.Crowds {
		if strings.HasPrefix(each.Contestant, "txlock Lock") {
			c.add(r.contestants[each.Contestant], float64(each.Callers), float64(sumUpCrowd(each).p50))
		}
	}
	return c
}

// add adds a point, unless it was not measured.
func (c *chart) add(of results.Contestant, x, y float64) {
	if x <= 0 || y <= 0 {
		return
	}
	at := slices.IndexFunc(c.lines, func(l line) bool { return l.contestant.Name == of.Name })
	if at < 0 {
		at = len(c.lines)
		c.lines = append(c.lines, line{contestant: of})
	}
	c.lines[at].points = append(c.lines[at].points, plotter.XY{X: x, Y: y})
}

// plotted is a file with a plot.
type plotted struct{ File, Title string }

// draw draws charts into files of a folder, whose names have this beginning.
func draw(folder, beginning string, charts []chart) (files []plotted, err error) {
	for _, c := range charts {
		file := strings.Trim(beginning+"-"+c.name, "-") + ".svg"
		if err := c.draw(filepath.Join(folder, file)); err != nil {
			return nil, fmt.Errorf("draw %s: %w", file, err)
		}
		files = append(files, plotted{file, c.title})
	}
	return files, nil
}

// The size of a plot, and the room for the names at its right.
const width, height, room = 800, 360, 280

func (c chart) draw(path string) (err error) {
	p := plot.New()
	sans := font.Font{Typeface: "Liberation", Variant: "Sans", Size: 11}
	p.Title.Text, p.Title.TextStyle.Font = c.title, sans
	p.Title.TextStyle.Font.Size = 14
	p.X.Label.Text, p.Y.Label.Text = c.x, "p50"
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Scale, axis.Tick.Label.Font, axis.Label.TextStyle.Font = plot.LogScale{}, sans, sans
	}
	p.Add(plotter.NewGrid())
	names := plot.NewLegend()
	names.Top, names.TextStyle.Font = true, sans
	names.Padding = 3
	// The names are in the order of the lines' ends.
	lines := slices.Clone(c.lines)
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(b.last(), a.last()) })
	var xs, ys []float64
	for _, l := range lines {
		slices.SortFunc(l.points, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
		for _, point := range l.points {
			xs, ys = append(xs, point.X), append(ys, point.Y)
		}
		drawn, err := plotter.NewLine(l.points)
		if err != nil {
			return err
		}
		drawn.LineStyle = l.style()
		p.Add(drawn)
		names.Add(l.contestant.Name, drawn)
	}
	p.X.Min, p.X.Max = slices.Min(xs)/1.1, slices.Max(xs)*1.1
	p.X.Tick.Marker = ticks(slices.Compact(slices.Sorted(slices.Values(xs))), c.label)
	p.Y.Min, p.Y.Max = slices.Min(ys)/1.2, slices.Max(ys)*1.2
	p.Y.Tick.Marker = ticks(decades(p.Y.Min, p.Y.Max), tickTime)

	svg := vgsvg.New(width, height)
	area := canvas.New(svg)
	p.Draw(canvas.Crop(area, 0, -room, 0, 0))
	names.Draw(canvas.Crop(area, width-room, 0, 0, -24))
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = svg.WriteTo(file)
	return cmp.Or(err, file.Close())
}

// style has a colour for each server, and thick lines for txlock. The colours are those of Okabe
// and Ito, which colour-blind people can tell apart.
func (l line) style() canvas.LineStyle {
	colours := map[contest.Server]color.RGBA{
		contest.PostgreSQL: {0, 114, 178, 255}, contest.MySQL: {213, 94, 0, 255},
		contest.MariaDB: {0, 158, 115, 255}, contest.Redis: {204, 121, 167, 255}, contest.Etcd: {86, 86, 86, 255},
	}
	style := canvas.LineStyle{Color: colours[contest.Server(l.contestant.Server)], Width: 1}
	switch group := contest.Group(l.contestant.Group); {
	case group == contest.TxLock && strings.HasSuffix(l.contestant.Name, ", no queue"):
		style.Dashes = []vg.Length{6, 3}
	case group == contest.TxLock:
		style.Width = 2.5
	case group == contest.ByHand:
		style.Dashes = []vg.Length{6, 3}
	default:
		style.Dashes = []vg.Length{2, 2}
	}
	return style
}

// ticks are at these values.
func ticks(values []float64, label func(float64) string) (all plot.ConstantTicks) {
	for _, x := range values {
		all = append(all, plot.Tick{Value: x, Label: label(x)})
	}
	return all
}

// decades are values for the ticks of a logarithmic axis: powers of ten, and steps between them if
// there are few.
func decades(low, high float64) (values []float64) {
	steps := []float64{1}
	switch span := math.Log10(high / low); {
	case span < 1.2:
		steps = []float64{1, 1.5, 2, 3, 5, 7}
	case span < 2.5:
		steps = []float64{1, 2, 5}
	}
	for exponent := math.Floor(math.Log10(low)); exponent <= math.Log10(high); exponent++ {
		for _, step := range steps {
			if x := step * math.Pow(10, exponent); x >= low && x <= high {
				values = append(values, x)
			}
		}
	}
	return values
}
