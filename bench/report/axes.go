package report

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	xfont "golang.org/x/image/font"

	"github.com/txlock/txlock/bench/contest"
)

// small is the size of most texts in plots.
const small = 12

func writing(size vg.Length, colour color.Color, align text.XAlignment) text.Style {
	return text.Style{
		Color: colour, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: size},
		XAlign: align, YAlign: draw.YCenter, Handler: plot.DefaultTextHandler,
	}
}

func bold(style text.Style) text.Style {
	style.Font.Weight = xfont.WeightBold
	return style
}

// newPlot is a plot that shows its data: without frames, with a light grid.
func newPlot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Width, axis.Tick.LineStyle.Width, axis.Tick.Length = 0, 0, 4
		axis.Padding = 0
		axis.Tick.Label.Font = writing(small, muted, 0).Font
		axis.Tick.Label.Color = muted
		axis.Label.TextStyle.Font, axis.Label.TextStyle.Color = axis.Tick.Label.Font, muted
		axis.Label.Padding = 6
	}
	grid := plotter.NewGrid()
	grid.Vertical = draw.LineStyle{Color: lines, Width: 1}
	grid.Horizontal = grid.Vertical
	p.Add(grid)
	return p
}

// logarithmic makes an axis logarithmic from the smallest to the largest positive value, with some room.
func logarithmic(axis *plot.Axis, values []float64, label func(float64) string) {
	axis.Min, axis.Max = math.Inf(1), math.Inf(-1)
	for _, x := range values {
		if x > 0 && !math.IsInf(x, 0) {
			axis.Min, axis.Max = min(axis.Min, x), max(axis.Max, x)
		}
	}
	if axis.Min > axis.Max {
		axis.Min, axis.Max = 1, 10
	}
	axis.Min, axis.Max = axis.Min/1.3, axis.Max*1.3
	axis.Scale = plot.LogScale{}
	axis.Tick.Marker = plot.ConstantTicks(decades(axis.Min, axis.Max, label))
}

// decades are the ticks of a logarithmic axis: powers of ten, and steps between them if these are few.
func decades(low, high float64, label func(float64) string) (ticks []plot.Tick) {
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
				ticks = append(ticks, plot.Tick{Value: x, Label: label(x)})
			}
		}
	}
	return ticks
}

// linear makes an axis linear from 0, or from low.
func linear(axis *plot.Axis, low, high, step float64, label func(float64) string) {
	axis.Min, axis.Max = low, high
	var ticks plot.ConstantTicks
	for i := math.Ceil(low / step); i*step <= high+step/1000; i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: label(i * step)})
	}
	axis.Tick.Marker = ticks
}

// stepFor is a round distance of ticks so that there are about five.
func stepFor(span float64) float64 {
	if span <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(span/5)))
	for _, step := range []float64{1, 2, 5} {
		if span/(step*power) <= 6 {
			return step * power
		}
	}
	return 10 * power
}

// drawMark draws a group's mark.
func drawMark(c *draw.Canvas, group contest.Group, at vg.Point, radius vg.Length) {
	l := lookOf(group)
	c.SetLineWidth(1.8)
	c.SetLineDash(nil, 0)
	c.DrawGlyphNoClip(draw.GlyphStyle{Color: l.color, Radius: radius, Shape: l.shape}, at)
}
