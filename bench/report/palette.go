package report

import (
	"fmt"
	"html/template"
	"image/color"

	"gonum.org/v1/plot/vg/draw"

	"github.com/txlock/txlock/bench/contest"
)

// look is how a group is drawn. The colours are those of Okabe and Ito, which colour-blind people
// can tell apart. Each group also has its own shape.
type look struct {
	color color.RGBA
	shape shape
}

var looks = map[contest.Group]look{
	contest.TxLock:    {color.RGBA{0, 83, 204, 255}, circle},
	contest.Floor:     {color.RGBA{31, 41, 55, 255}, ring},
	contest.ByHand:    {color.RGBA{120, 128, 140, 255}, square},
	contest.Native:    {color.RGBA{214, 137, 0, 255}, pyramid},
	contest.Libraries: {color.RGBA{186, 88, 145, 255}, triangle},
	contest.OnRedis:   {color.RGBA{203, 75, 10, 255}, diamond},
	contest.OnZK:      {color.RGBA{0, 140, 102, 255}, cross},
	contest.OnEtcd:    {color.RGBA{60, 160, 215, 255}, plus},
	contest.InProcess: {color.RGBA{31, 41, 55, 255}, square},
}

// The colours that belong to no group.
var (
	ink    = color.RGBA{31, 41, 55, 255}
	muted  = color.RGBA{107, 114, 128, 255}
	grid   = color.RGBA{226, 230, 236, 255}
	accent = color.RGBA{236, 243, 255, 255} // behind the rows of txlock
	alarm  = color.RGBA{196, 30, 58, 255}
	right  = color.RGBA{0, 128, 96, 255}
	paper  = color.RGBA{255, 255, 255, 255}
)

func lookOf(group contest.Group) look {
	if l, known := looks[group]; known {
		return l
	}
	return look{muted, circle}
}

// faint makes a colour recede into the background.
func faint(c color.RGBA) color.RGBA {
	pale := func(part uint8) uint8 { return uint8((int(part)*2 + 255*3) / 5) }
	return color.RGBA{pale(c.R), pale(c.G), pale(c.B), 255}
}

// key is an entry of a legend.
type key struct {
	Mark template.HTML
	Name string
}

// legend has the marks of the groups that are present, in the order of the report.
func legend(present map[contest.Group]bool) (keys []key, err error) {
	for _, group := range contest.Groups {
		if !present[group] {
			continue
		}
		mark, err := render(14, 14, "", func(c draw.Canvas) { drawMark(&c, group, c.Center(), 5) })
		if err != nil {
			return nil, err
		}
		keys = append(keys, key{mark, string(group)})
	}
	return keys, nil
}

func css(c color.RGBA) template.CSS {
	return template.CSS(fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B)) //nolint:gosec // three numbers
}
