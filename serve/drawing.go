package serve

import (
	"fmt"
	"slices"
	"strings"
)

// The sizes of the picture of who waits for whom, in its own units.
const (
	boxWidth    = 214
	boxHeight   = 46
	boxGap      = 14 // between rows
	layerGap    = 56 // between layers, where the arrows are
	mostBoxes   = 60
	mostLetters = 28 // of a line in a box
)

// box is a session, or several that wait at the same lock, and for whom nobody waits.
type box struct {
	X, Y        int
	First, Last string // its two lines
	Circle      bool
}

// Begin is where its lines begin. Upper and Lower are their base lines.
func (b box) Begin() int { return b.X + 10 }

// Upper is the base line of First.
func (b box) Upper() int { return b.Y + 19 }

// Lower is the base line of Last.
func (b box) Lower() int { return b.Y + 37 }

// arrow points from who waits to whom is waited for.
type arrow struct {
	Path   string
	Circle bool
}

// Tip is the id of its end.
func (a arrow) Tip() string {
	if a.Circle {
		return "tip-bad"
	}
	return "tip"
}

// Tips are the ids of the ends of arrows.
func (drawing) Tips() []string { return []string{"tip", "tip-bad"} }

// drawing is the graph as a picture. Who waits for nobody stands on the left. The list beside it
// says the same, and says all.
type drawing struct {
	Width, Height int
	Boxes         []box
	Arrows        []arrow
	Left          int // sessions for which there is no room
}

// sketch is a drawing that grows from the top.
type sketch struct {
	drawing
	placed map[*node]int // the number of its box, or noBox
	row    int
}

const noBox = -1

// draw begins with the sessions that wait for nobody. What is not reached from them waits behind a
// circle. Whoever waits stands one layer further to the right than whom it waits for.
func draw(nodes []*node) drawing {
	s := &sketch{placed: map[*node]int{}}
	for _, first := range []bool{true, false} {
		for _, n := range nodes {
			if _, done := s.placed[n]; !done && first == (len(n.out) == 0) {
				s.place(n, 0)
				s.row++
			}
		}
	}
	for _, n := range nodes {
		for _, e := range n.out {
			if from, to := s.placed[e.from], s.placed[e.to]; from != noBox && to != noBox {
				s.point(from, to, e.InCircle() > 0)
			}
		}
	}
	// A crowd has one box, and one arrow.
	slices.SortFunc(s.Arrows, func(a, b arrow) int { return strings.Compare(a.Path, b.Path) })
	s.Arrows = slices.Compact(s.Arrows)
	for _, b := range s.Boxes {
		s.Width, s.Height = max(s.Width, b.X+boxWidth+layerGap/2), max(s.Height, b.Y+boxHeight+boxGap)
	}
	return s.drawing
}

// place gives a session a box in this row, and those who wait for it theirs in this row and below.
func (s *sketch) place(n *node, layer int) {
	last := n.client
	if len(n.out) > 0 {
		last = standing(n.out[0])
	}
	if !s.add(layer, n.label, last, n.circle > 0, n) {
		return
	}
	crowds, order := map[string][]*node{}, []string(nil)
	below := false
	next := func() {
		if below {
			s.row++
		}
		below = true
	}
	for _, e := range n.in {
		if _, done := s.placed[e.from]; done {
			continue
		}
		if len(e.from.in) == 0 && len(e.from.out) == 1 {
			if crowds[e.lock.ID] == nil {
				order = append(order, e.lock.ID)
			}
			crowds[e.lock.ID] = append(crowds[e.lock.ID], e.from)
			continue
		}
		next()
		s.place(e.from, layer+1)
	}
	for _, lock := range order {
		next()
		crowd := crowds[lock]
		label := crowd[0].label
		if len(crowd) > 1 {
			label = counted(len(crowd), "session", "sessions")
		}
		s.add(layer+1, label, standing(crowd[0].out[0]), false, crowd...)
	}
}

// add draws a box for these sessions, if there is room.
func (s *sketch) add(layer int, first, last string, circle bool, of ...*node) bool {
	number := len(s.Boxes)
	if number >= mostBoxes {
		number = noBox
		s.Left += len(of)
	} else {
		s.Boxes = append(s.Boxes, box{
			X: 2 + layer*(boxWidth+layerGap), Y: 2 + s.row*(boxHeight+boxGap), First: cut(first, mostLetters),
			Last: cut(last, mostLetters), Circle: circle,
		})
	}
	for _, n := range of {
		s.placed[n] = number
	}
	return number != noBox
}

func standing(e *edge) string {
	if e.For == "" {
		return "at " + e.lock.Name
	}
	return e.For + " at " + e.lock.Name
}

// point draws an arrow, from the left side of a box to the right side of another. In a circle one
// goes back: it passes below its boxes.
func (s *sketch) point(from, to int, circle bool) {
	a, b := s.Boxes[from], s.Boxes[to]
	if a.X > b.X {
		y1, y2 := a.Y+boxHeight/2, b.Y+boxHeight/2
		middle := a.X - layerGap/2
		s.arrow(circle, a.X, y1, middle, y1, middle, y2, b.X+boxWidth, y2)
		return
	}
	x1, x2 := a.X+boxWidth/2-10, b.X+boxWidth/2+10
	bottom := max(a.Y, b.Y) + boxHeight + boxGap
	s.arrow(circle, x1, a.Y+boxHeight, x1, bottom, x2, bottom, x2, b.Y+boxHeight)
}

// arrow draws a curve: where it begins, the two points that bend it, and where it ends.
func (s *sketch) arrow(circle bool, at ...any) {
	s.Arrows = append(s.Arrows, arrow{fmt.Sprintf("M%d %dC%d %d %d %d %d %d", at...), circle})
}
