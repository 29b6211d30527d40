package report

import (
	"errors"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// The contestants of the picture.
const (
	withoutQueue = "txlock Lock, pgx, no queue"
	withQueue    = "txlock Lock, pgx"
)

// Pools draws what becomes of a pool of connections beside a crowd that wants one key, with and
// without a queue in the process: an SVG for docs/pools.md.
func Pools(w io.Writer, run results.Run) error {
	x := newIndex(run)
	p := poolsPicture{
		{"Without a queue in the process", contest.Native, x.crowdsOf(withoutQueue)},
		{"With a queue in the process: the default", contest.TxLock, x.crowdsOf(withQueue)},
	}
	for _, each := range p {
		if len(each.crowds) == 0 {
			return errors.New("these results have no crowds of " + withQueue + " and of " + withoutQueue)
		}
	}
	drawing, err := render(picWidth, picHeight, p.title(), p.draw)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, standalone(drawing))
	return err
}

const picWidth, picHeight = 960, 470

// standalone makes an SVG of a page a file of its own.
func standalone(drawing template.HTML) string {
	return strings.Replace(string(drawing), "<svg ", `<svg xmlns="http://www.w3.org/2000/svg" `+
		`font-family="Helvetica, Arial, Liberation Sans, sans-serif" `, 1) + "\n"
}

func (x *index) crowdsOf(name string) []crowd {
	return slices.DeleteFunc(x.crowds(), func(c crowd) bool { return c.Contestant != name || c.p50 <= 0 })
}

// poolsPicture has the pools to compare.
type poolsPicture []pool

type pool struct {
	name   string
	group  contest.Group // has its colour and mark
	crowds []crowd       // by the number of callers
}

// most is the largest crowd.
func (p pool) most() crowd { return p.crowds[len(p.crowds)-1] }

// busy says what the largest crowd leaves of the pool.
func (p pool) busy() string {
	c := p.most()
	return fmt.Sprintf("%d of %d connections busy at most; a free key is locked after %s (p50)",
		min(c.busy, c.Connections), c.Connections, strings.Replace(c.free(c.p50), ">", "more than", 1))
}

func (p poolsPicture) title() string {
	var parts []string
	for _, pool := range p {
		parts = append(parts, pool.name+": "+pool.busy()+".")
	}
	return fmt.Sprintf("%d callers of one key in one process. %s", p[0].most().Callers, strings.Join(parts, " "))
}

func (p poolsPicture) draw(area draw.Canvas) {
	area.FillPolygon(paper, []vg.Point{
		area.Min, {X: area.Max.X, Y: area.Min.Y}, area.Max, {X: area.Min.X, Y: area.Max.Y},
	})
	const rowHeight = 78
	heading := bold(writing(small+4, ink, draw.XLeft))
	area.FillText(heading, vg.Point{X: area.Min.X + 16, Y: area.Max.Y - 24}, fmt.Sprintf(
		"%d callers of one key, one caller of a free key, in one process", p[0].most().Callers))
	for i, pool := range p {
		pool.draw(area, area.Max.Y-62-vg.Length(i)*rowHeight)
	}
	p.plot(draw.Crop(area, 16, -250, 10, -62-2*rowHeight+14))
}

// draw draws a square for each connection, filled for those that are busy.
func (p pool) draw(area draw.Canvas, top vg.Length) {
	const side, gap = 26, 8
	look, c := lookOf(p.group), p.most()
	area.FillText(bold(writing(small+1, look.color, draw.XLeft)), vg.Point{X: area.Min.X + 16, Y: top}, p.name)
	for i := range c.Connections {
		left, high := area.Min.X+16+vg.Length(i)*(side+gap), top-14
		corners := []vg.Point{
			{X: left, Y: high},
			{X: left + side, Y: high},
			{X: left + side, Y: high - side},
			{X: left, Y: high - side},
		}
		if i < c.busy {
			area.FillPolygon(look.color, corners)
		}
		area.StrokeLines(draw.LineStyle{Color: look.color, Width: 1.4}, append(corners, corners[0]))
	}
	end := area.Min.X + 16 + vg.Length(c.Connections)*(side+gap) + 8
	area.FillText(writing(small+1, ink, draw.XLeft), vg.Point{X: end, Y: top - 14 - side/2}, p.busy())
}

// plot draws the wait for the free key against the number of callers.
func (p poolsPicture) plot(area draw.Canvas) {
	chart := newPlot()
	chart.X.Label.Text, chart.Y.Label.Text = "callers of the other key", "wait (p50)"
	var xs, ys []float64
	var lines []line
	for _, pool := range p {
		l := line{group: pool.group}
		for _, c := range pool.crowds {
			at := point{float64(c.Callers), float64(c.p50), float64(c.p99)}
			l.points = append(l.points, at)
			xs, ys = append(xs, at.x), append(ys, at.y, at.second)
		}
		lines = append(lines, l)
	}
	logarithmic(&chart.Y, ys, tickTime)
	logarithmic(&chart.X, xs, tick)
	chart.X.Tick.Marker = at(xs)
	chart.Draw(area)
	data := chart.DataCanvas(area)
	for i, l := range lines {
		l.draw(&area, chart, data)
		p[i].label(area, chart, data)
	}
}

// label names the two lines of a pool at their ends.
func (p pool) label(area draw.Canvas, chart *plot.Plot, data draw.Canvas) {
	_, y := chart.Transforms(&data)
	style := writing(small, lookOf(p.group).color, draw.XLeft)
	c := p.most()
	median, tail := y(float64(c.p50)), y(float64(c.p99))
	if tail-median < 15 {
		tail = median + 15
	}
	text := vg.Point{X: data.Max.X + 12, Y: median}
	area.FillText(bold(style), text, c.free(c.p50)+" (p50)")
	text.Y = tail
	area.FillText(style, text, c.free(c.p99)+" (p99, dashed)")
}
