package report

import (
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	xfont "golang.org/x/image/font"
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

// newPlot returns a plot without frames and with a light grid, so that the data stands out.
func newPlot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Width, axis.Tick.LineStyle.Width, axis.Tick.Length = 0, 0, 4
		axis.Padding = 6
		axis.Tick.Label.Font = writing(small, muted, 0).Font
		axis.Tick.Label.Color = muted
		axis.Label.TextStyle.Font, axis.Label.TextStyle.Color = axis.Tick.Label.Font, muted
		axis.Label.Padding = 6
	}
	under := plotter.NewGrid()
	under.Vertical = draw.LineStyle{Color: grid, Width: 1}
	under.Horizontal = under.Vertical
	p.Add(under)
	return p
}

// logarithmic makes an axis logarithmic, from the smallest to the largest positive value with a
// margin.
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

// decades are the ticks of a logarithmic axis: powers of ten, and steps between them if there are
// few.
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

// thin removes ticks of a horizontal axis until their labels no longer overlap. Powers of ten stay.
func thin(axis *plot.Axis, length vg.Length) {
	var kept plot.ConstantTicks
	end := func(t plot.Tick, side float64) vg.Length {
		return length*vg.Length(axis.Norm(t.Value)) + vg.Length(side)*(axis.Tick.Label.Width(t.Label)/2+4)
	}
	ticks := axis.Tick.Marker.Ticks(axis.Min, axis.Max)
	for _, round := range []bool{true, false} {
		for _, t := range ticks {
			exponent := math.Log10(math.Abs(t.Value))
			collides := slices.ContainsFunc(kept, func(other plot.Tick) bool {
				return end(t, -1) < end(other, 1) && end(other, -1) < end(t, 1)
			})
			if (math.Abs(exponent-math.Round(exponent)) < 1e-9) == round && !collides {
				kept = append(kept, t)
			}
		}
	}
	axis.Tick.Marker = kept
}

// linear makes an axis linear, from 0 or from low.
func linear(axis *plot.Axis, low, high, step float64, label func(float64) string) {
	axis.Min, axis.Max = low, high
	var ticks plot.ConstantTicks
	for i := math.Ceil(low / step); i*step <= high+step/1000; i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: label(i * step)})
	}
	axis.Tick.Marker = ticks
}

// stepFor is a round distance between ticks, for about five ticks.
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
