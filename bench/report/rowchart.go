package report

import (
	"cmp"
	"html/template"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/txlock/txlock/bench/contest"
)

// rowChart is a plot with a row for each contestant: a mark with a whisker, or a bar.
type rowChart struct {
	title, axis string // what the chart shows, and the unit of the axis
	caption     string
	rows        []row
	bars        bool
	aside       bool // notes have a column of their own, clear of the reference lines
	scale       func(axis *plot.Axis, values []float64)
	references  []reference
}

// row is a contestant's figures. The whisker goes from low to high. There is none if both are 0.
type row struct {
	name             string
	group            contest.Group
	value, low, high float64
	note             string      // written after the mark
	short            string      // the part of note that fits on a phone; empty: all
	color            color.Color // nil: the group's
}

// reference is a line to compare with.
type reference struct {
	value float64
	label string
	color color.Color
}

// ascending sorts rows by their values.
func ascending(a, b row) int {
	return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.name, b.name))
}

// descending sorts rows by their values, the largest first.
func descending(a, b row) int { return ascending(b, a) }

func (r rowChart) figure() (f figure, err error) {
	f.Caption, f.Heading = r.caption, r.title
	if f.Wide, err = r.draw(pageWidth, 22, false); err != nil {
		return f, err
	}
	f.Narrow, err = r.draw(phoneWidth, 34, true)
	return f, err
}

// drawn is a row chart while it is drawn. On a phone the names are above the marks, because there
// is no room beside them.
type drawn struct {
	rowChart
	plot      *plot.Plot
	area      draw.Canvas // the whole chart
	data      draw.Canvas // the part between the axes
	rowHeight vg.Length
	stacked   bool
}

func (r rowChart) draw(width, rowHeight vg.Length, stacked bool) (template.HTML, error) {
	var values []float64
	for _, row := range r.rows {
		values = append(values, row.value)
		if row.high > 0 {
			values = append(values, row.low, row.high)
		}
	}
	for _, line := range r.references {
		values = append(values, line.value)
	}
	p := newPlot()
	p.HideY()
	p.Y.Min, p.Y.Max = 0, float64(max(len(r.rows), 1))
	p.X.Label.Text = r.axis
	r.scale(&p.X, values)
	const top, bottom = 34, 46
	height := rowHeight*vg.Length(len(r.rows)) + top + bottom
	return render(width, height, r.title, func(area draw.Canvas) {
		left, behind := vg.Length(8), vg.Length(0)
		for _, row := range r.rows {
			if !stacked {
				left = max(left, r.nameStyle(row).Width(row.name)+18)
			}
			if !r.aside || !stacked {
				behind = max(behind, r.noteStyle().Width(row.note)+14)
			}
		}
		thin(&p.X, width-left-behind)
		inner := draw.Crop(area, left, -max(behind, 16), 0, -top)
		data := p.DataCanvas(inner)
		d := drawn{r, p, area, data, (data.Max.Y - data.Min.Y) / vg.Length(p.Y.Max), stacked}
		d.backgrounds()
		p.Draw(inner)
		d.ticksAbove()
		d.referenceLines()
		for i, row := range r.rows {
			d.row(i, row)
		}
	})
}

func (rowChart) nameStyle(row row) text.Style {
	style := writing(small, ink, draw.XLeft)
	if row.group == contest.TxLock {
		style.Color = lookOf(contest.TxLock).color
		style = bold(style)
	}
	return style
}

func (rowChart) noteStyle() text.Style { return writing(small-1, muted, draw.XLeft) }

// middle is the vertical position of a row's mark.
func (d drawn) middle(i int) vg.Length {
	y := d.data.Max.Y - d.rowHeight*(vg.Length(i)+0.5)
	if d.stacked {
		y -= d.rowHeight / 4
	}
	return y
}

func (d drawn) x(value float64) vg.Length { return d.data.X(d.plot.X.Norm(value)) }

// backgrounds highlights txlock's rows.
func (d drawn) backgrounds() {
	for i, row := range d.rows {
		if row.group != contest.TxLock {
			continue
		}
		high := d.data.Max.Y - d.rowHeight*vg.Length(i)
		low := high - d.rowHeight
		d.area.FillPolygon(accent, []vg.Point{
			{X: d.area.Min.X, Y: low},
			{X: d.area.Max.X, Y: low},
			{X: d.area.Max.X, Y: high},
			{X: d.area.Min.X, Y: high},
		})
	}
}

// ticksAbove repeats the axis labels above long charts, because readers start there.
func (d drawn) ticksAbove() {
	if len(d.references) > 0 || len(d.rows) < 12 {
		return
	}
	style := writing(small, muted, draw.XCenter)
	for _, t := range d.plot.X.Tick.Marker.Ticks(d.plot.X.Min, d.plot.X.Max) {
		d.area.FillText(style, vg.Point{X: d.x(t.Value), Y: d.data.Max.Y + 12}, t.Label)
	}
}

func (d drawn) referenceLines() {
	for i, line := range d.references {
		x, style := d.x(line.value), draw.LineStyle{Color: line.color, Width: 1.4, Dashes: []vg.Length{5, 3}}
		align := draw.XRight // the labels lean away from each other, because the lines may be close
		if i > 0 {
			align = draw.XLeft
		}
		d.area.FillText(writing(small-1, line.color, align), vg.Point{X: x, Y: d.data.Max.Y + 13}, line.label)
		if !d.stacked {
			d.area.StrokeLine2(style, x, d.data.Min.Y, x, d.data.Max.Y+4)
			continue
		}
		for i := range d.rows { // does not cross the names
			d.area.StrokeLine2(style, x, d.middle(i)-d.rowHeight/4, x, d.middle(i)+d.rowHeight/4)
		}
	}
}

func (d drawn) row(i int, row row) {
	y, name := d.middle(i), vg.Point{X: d.area.Min.X + 8, Y: d.middle(i)}
	if d.stacked {
		name.Y += d.rowHeight / 2
	}
	d.area.FillText(d.nameStyle(row), name, row.name)
	colour := row.color
	if colour == nil {
		colour = lookOf(row.group).color
	}
	x, end := d.x(row.value), d.x(max(row.value, row.high))
	if d.bars {
		start, half := d.data.Min.X, vg.Length(6)
		d.area.FillPolygon(colour, []vg.Point{
			{X: start, Y: y - half}, {X: x, Y: y - half}, {X: x, Y: y + half}, {X: start, Y: y + half},
		})
	} else {
		if row.high > 0 {
			style := draw.LineStyle{Color: faint(lookOf(row.group).color), Width: 2.5}
			d.area.StrokeLine2(style, d.x(row.low), y, end, y)
			d.area.StrokeLine2(style, end, y-4, end, y+4)
			if row.low < row.value {
				d.area.StrokeLine2(style, d.x(row.low), y-4, d.x(row.low), y+4)
			}
		}
		radius := vg.Length(4)
		if row.group == contest.TxLock {
			radius = 5
		}
		drawMark(&d.area, row.group, vg.Point{X: x, Y: y}, radius)
		end = max(end, x+radius)
	}
	note, text := vg.Point{X: end + 7, Y: y}, row.note
	if d.stacked && row.short != "" {
		text = row.short
	}
	if d.aside {
		note.X = d.data.Max.X + 7
	}
	if d.aside && d.stacked {
		note.X, note.Y = d.area.Max.X-d.noteStyle().Width(text)-4, name.Y
	}
	d.area.FillText(d.noteStyle(), note, text)
}
