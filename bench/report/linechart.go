package report

import (
	"cmp"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/txlock/txlock/bench/contest"
)

// lineChart is a plot of lines with two logarithmic axes. Each line has its name at its end.
type lineChart struct {
	title, heading string // title is the full one, heading stands above the chart
	xAxis, yAxis   string
	yTick          func(float64) string
	xs, ys         []float64 // values that the axes must include, so that adjacent charts have the same axes
	lines          []line
}

// line is a contestant's figures by x.
type line struct {
	name   string
	group  contest.Group
	dashes []vg.Length
	points []point
}

// point is a figure. The second value is drawn faintly, unless it is 0.
type point struct{ x, y, second float64 }

func (l lineChart) figure() (f figure, err error) {
	xs, ys := l.xs, l.ys
	for _, line := range l.lines {
		for _, p := range line.points {
			xs, ys = append(xs, p.x), append(ys, p.y, p.second)
		}
	}
	p := newPlot()
	p.Y.Label.Text, p.X.Label.Text = l.yAxis, l.xAxis
	logarithmic(&p.Y, ys, l.yTick)
	logarithmic(&p.X, xs, tick)
	p.X.Tick.Marker = at(xs)
	f.Heading = l.heading
	f.Wide, err = render(halfWidth, 330, l.title, func(area draw.Canvas) {
		room := vg.Length(16)
		for _, line := range l.lines {
			room = max(room, writing(small-1, ink, 0).Width(line.name)+26)
		}
		inner := draw.Crop(area, 2, -room, 2, -10)
		thin(&p.X, halfWidth-room-80)
		p.Draw(inner)
		data := p.DataCanvas(inner)
		for _, line := range l.lines {
			line.draw(&area, p, data)
		}
		l.names(&area, p, data)
	})
	return f, err
}

// at returns ticks at the measured values only.
func at(xs []float64) (ticks plot.ConstantTicks) {
	for _, x := range slices.Compact(slices.Sorted(slices.Values(xs))) {
		if x > 0 {
			ticks = append(ticks, plot.Tick{Value: x, Label: tick(x)})
		}
	}
	return ticks
}

func (l line) draw(c *draw.Canvas, p *plot.Plot, data draw.Canvas) {
	x, y := p.Transforms(&data)
	look := lookOf(l.group)
	var first, second []vg.Point
	for _, each := range l.points {
		first = append(first, vg.Point{X: x(each.x), Y: y(each.y)})
		if each.second > 0 {
			second = append(second, vg.Point{X: x(each.x), Y: y(each.second)})
		}
	}
	width := vg.Length(1.8)
	if l.group == contest.TxLock {
		width = 3
	}
	c.StrokeLines(draw.LineStyle{Color: faint(look.color), Width: 1.2, Dashes: []vg.Length{4, 3}}, second)
	c.StrokeLines(draw.LineStyle{Color: look.color, Width: width, Dashes: l.dashes}, first)
	for _, at := range first {
		drawMark(c, l.group, at, 4)
	}
}

// names writes the names at the ends of the lines, and moves overlapping names apart.
func (l lineChart) names(c *draw.Canvas, p *plot.Plot, data draw.Canvas) {
	const apart = 14
	type ending struct {
		line    line
		end, at vg.Length // where the line ends, and where its name is
		from    vg.Length
	}
	x, y := p.Transforms(&data)
	var endings []ending
	for _, line := range l.lines {
		last := line.points[len(line.points)-1]
		endings = append(endings, ending{line, y(last.y), y(last.y), x(last.x)})
	}
	slices.SortFunc(endings, func(a, b ending) int { return cmp.Compare(b.end, a.end) })
	for i := range endings {
		if i > 0 {
			endings[i].at = min(endings[i].at, endings[i-1].at-apart)
		}
	}
	lowest := data.Min.Y
	for i := range endings {
		e := &endings[len(endings)-1-i]
		e.at = max(e.at, lowest)
		lowest = e.at + apart
	}
	for _, e := range endings {
		look := lookOf(e.line.group)
		style := writing(small-1, look.color, draw.XLeft)
		if e.line.group == contest.TxLock {
			style = bold(style)
		}
		c.StrokeLines(draw.LineStyle{Color: faint(look.color), Width: 1},
			[]vg.Point{{X: e.from + 6, Y: e.end}, {X: data.Max.X + 4, Y: e.end}, {X: data.Max.X + 14, Y: e.at}})
		c.FillText(style, vg.Point{X: data.Max.X + 17, Y: e.at}, e.line.name)
	}
}
