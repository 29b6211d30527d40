package report

import (
	"cmp"
	"html/template"
	"math"
	"slices"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/txlock/txlock/bench/contest"
)

// scatter is a plot with a mark for each contestant, and as many names as fit.
type scatter struct {
	title, caption string
	xAxis, yAxis   string
	xStep          float64 // between the ticks of the x axis, which ends at 1
	yTick          func(float64) string
	dots           []dot
}

// dot is a contestant's mark.
type dot struct {
	name  string
	group contest.Group
	x, y  float64
}

func (s scatter) figure() (f figure, err error) {
	f.Heading, f.Caption = s.title, s.caption
	if f.Wide, err = s.draw(pageWidth, 560); err != nil {
		return f, err
	}
	f.Narrow, err = s.draw(phoneWidth, 480)
	return f, err
}

func (s scatter) draw(width, height vg.Length) (template.HTML, error) {
	p := newPlot()
	p.X.Label.Text, p.Y.Label.Text = s.xAxis, s.yAxis
	lowest := 1.0
	for _, d := range s.dots {
		lowest = min(lowest, d.x)
	}
	linear(&p.X, max(0, math.Floor(lowest/s.xStep-0.5)*s.xStep), 1, s.xStep, tick)
	var ys []float64
	for _, d := range s.dots {
		ys = append(ys, d.y)
	}
	logarithmic(&p.Y, ys, s.yTick)
	// Names are placed in this order: the most important first, then the farthest from the crowd.
	dots := slices.SortedFunc(slices.Values(s.dots), func(a, b dot) int {
		return cmp.Or(-cmp.Compare(rank(a), rank(b)), cmp.Compare(a.x, b.x), cmp.Compare(a.name, b.name))
	})
	return render(width, height, s.title, func(area draw.Canvas) {
		inner := draw.Crop(area, 2, -width/5, 2, -10)
		p.Draw(inner)
		data := p.DataCanvas(inner)
		x, y := p.Transforms(&data)
		names := labels{canvas: &area, within: data.Rectangle}
		names.within.Max.X = area.Max.X - 2 // most marks are at 1, with their names to the right
		for _, d := range dots {
			names.avoid(vg.Point{X: x(d.x), Y: y(d.y)})
		}
		for _, d := range dots {
			names.place(d, vg.Point{X: x(d.x), Y: y(d.y)})
		}
		for _, d := range slices.Backward(dots) { // what is named first is on top
			drawMark(&area, d.group, vg.Point{X: x(d.x), Y: y(d.y)}, 4.5)
		}
	})
}

func rank(d dot) int {
	if d.group == contest.TxLock {
		return 1
	}
	return 0
}

// labels are names near marks that do not cover each other.
type labels struct {
	canvas *draw.Canvas
	within vg.Rectangle
	taken  []vg.Rectangle
}

// avoid keeps names away from a mark.
func (l *labels) avoid(mark vg.Point) {
	l.taken = append(l.taken, vg.Rectangle{
		Min: vg.Point{X: mark.X - 5, Y: mark.Y - 5}, Max: vg.Point{X: mark.X + 5, Y: mark.Y + 5},
	})
}

// place writes a name at the nearest free place around its mark. If there is none, it writes
// nothing: the table has all names.
func (l *labels) place(d dot, mark vg.Point) {
	look := lookOf(d.group)
	style := writing(small-1, look.color, draw.XLeft)
	if d.group == contest.TxLock {
		style = bold(style)
	}
	width := style.Width(d.name)
	const height, directions = 13, 16
	for _, distance := range []vg.Length{10, 18, 28, 40, 54, 70, 90} {
		for i := range directions {
			angle := 2 * math.Pi * float64(i) / directions
			anchor := vg.Point{
				X: mark.X + distance*vg.Length(math.Cos(angle)),
				Y: mark.Y + distance*vg.Length(math.Sin(angle)),
			}
			box := vg.Rectangle{Min: vg.Point{X: anchor.X, Y: anchor.Y - height/2}}
			if math.Cos(angle) < 0 {
				box.Min.X -= width
			}
			box.Max = vg.Point{X: box.Min.X + width, Y: box.Min.Y + height}
			if !l.free(box) {
				continue
			}
			l.taken = append(l.taken, box)
			if distance > 10 {
				l.canvas.StrokeLine2(draw.LineStyle{Color: faint(look.color), Width: 0.8}, mark.X, mark.Y, anchor.X,
					anchor.Y)
			}
			l.canvas.FillText(style, vg.Point{X: box.Min.X, Y: anchor.Y}, d.name)
			return
		}
	}
}

func (l *labels) free(box vg.Rectangle) bool {
	if box.Min.X < l.within.Min.X || box.Max.X > l.within.Max.X || box.Min.Y < l.within.Min.Y ||
		box.Max.Y > l.within.Max.Y {
		return false
	}
	return !slices.ContainsFunc(l.taken, func(other vg.Rectangle) bool {
		return box.Min.X < other.Max.X && other.Min.X < box.Max.X && box.Min.Y < other.Max.Y && other.Min.Y < box.Max.Y
	})
}
