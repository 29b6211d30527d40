package report

import (
	"math"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/txlock/txlock/bench/contest"
)

// shape is the shape of a mark: a polygon around its middle, or strokes through it. gonum's own
// marks are too thin to see.
type shape struct {
	corners int
	turned  float64 // where the first corner is, in quarter turns from the right
	strokes bool
	hollow  bool
}

var (
	circle   = shape{}
	ring     = shape{hollow: true}
	square   = shape{corners: 4, turned: 0.5}
	diamond  = shape{corners: 4}
	pyramid  = shape{corners: 3, turned: 1}
	triangle = shape{corners: 3, turned: 3}
	cross    = shape{corners: 4, turned: 0.5, strokes: true}
	plus     = shape{corners: 4, strokes: true}
)

// drawMark draws a group's mark.
func drawMark(c *draw.Canvas, group contest.Group, at vg.Point, radius vg.Length) {
	l := lookOf(group)
	outline := l.shape.outline(at, radius)
	c.SetLineDash(nil, 0)
	c.SetColor(l.color)
	switch {
	case l.shape.strokes:
		c.SetLineWidth(2.2)
		c.Stroke(outline)
	case l.shape.hollow:
		c.SetColor(paper)
		c.Fill(outline)
		c.SetColor(l.color)
		c.SetLineWidth(1.8)
		c.Stroke(outline)
	default:
		c.Fill(outline)
		// A thin edge in the paper's colour separates overlapping marks.
		c.SetColor(paper)
		c.SetLineWidth(0.8)
		c.Stroke(outline)
	}
}

func (s shape) outline(at vg.Point, radius vg.Length) (path vg.Path) {
	if s.corners == 0 {
		path.Move(vg.Point{X: at.X + radius, Y: at.Y})
		path.Arc(at, radius, 0, 2*math.Pi)
		path.Close()
		return path
	}
	radius *= 1.3 // a polygon is smaller than the circle around it
	for i := range s.corners {
		angle := math.Pi/2*s.turned + 2*math.Pi*float64(i)/float64(s.corners)
		corner := vg.Point{X: at.X + radius*vg.Length(math.Cos(angle)), Y: at.Y + radius*vg.Length(math.Sin(angle))}
		switch {
		case s.strokes:
			path.Move(at)
			path.Line(corner)
		case i == 0:
			path.Move(corner)
		default:
			path.Line(corner)
		}
	}
	if !s.strokes {
		path.Close()
	}
	return path
}
