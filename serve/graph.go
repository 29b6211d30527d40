package serve

import (
	"fmt"
	"slices"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/holdings"
)

const mostEdges = 500 // in the list

// node is a session that others wait for, or that waits. A holder whom the server did not name is a
// node of its own for each lock.
type node struct {
	label  string
	client string
	out    []*edge // to whom it waits for
	in     []*edge
	circle int // its number, from 1; 0 outside of circles
	// for the search for circles
	needs      int  // how many must go on before it can
	met        bool // one of those any of which will do goes on
	goesOn     bool // in time
	index, low int
	open       bool
}

// edge says that a session waits for another at a lock.
type edge struct {
	from, to *node
	lock     lockView
	any      bool // any holder of the lock will do
	For      string
}

// InCircle tells whether both ends are in the same circle.
func (e *edge) InCircle() int {
	if e.from.circle == e.to.circle {
		return e.from.circle
	}
	return 0
}

// edgeView is a line of the list.
type edgeView struct {
	ID, Waiter, WaiterClient, Lock, URL, Holder, HolderClient, For string

	Circle int
}

// circleView is sessions that wait for each other.
type circleView struct {
	Number int
	Words  []string
}

// graph is the view of who waits for whom.
type graph struct {
	At      string
	Edges   []edgeView
	More    int
	Circles []circleView
}

func graphOf(s *state) graph {
	nodes := connect(s.holdings)
	circles := circlesOf(nodes)
	g := graph{At: s.when()}
	for i, members := range circles {
		c := circleView{Number: i + 1}
		for _, n := range members {
			for _, e := range n.out {
				if e.InCircle() > 0 {
					c.Words = append(c.Words, fmt.Sprintf("%s waits at %s for %s", n.label, e.lock.Name, e.to.label))
				}
			}
		}
		g.Circles = append(g.Circles, c)
	}
	for i, n := range nodes {
		for j, e := range n.out { // several at one lock that is shared
			if len(g.Edges) == mostEdges {
				g.More++
				continue
			}
			g.Edges = append(g.Edges, edgeView{
				ID: fmt.Sprint("e", e.lock.ID, "-", i, "-", j), URL: e.lock.URL, Lock: e.lock.Name, For: e.For,
				Waiter: n.label, WaiterClient: n.client, Holder: e.to.label, HolderClient: e.to.client,
				Circle: e.InCircle(),
			})
		}
	}
	of, others := []edgeView{}, []edgeView{} // circles come first
	for _, e := range g.Edges {
		if e.Circle > 0 {
			of = append(of, e)
		} else {
			others = append(others, e)
		}
	}
	g.Edges = append(of, others...)
	return g
}

// connect makes the graph, in the order of the most urgent locks.
func connect(all []txlock.Holding) []*node {
	var nodes []*node
	known := map[string]*node{}
	of := func(s txlock.Session, unnamed string) *node {
		key, label := "session "+s.ID, "session "+clean(s.ID)
		if s.ID == "" {
			key, label = unnamed, "a session that the server did not name"
		}
		n := known[key]
		if n == nil {
			n = &node{label: label, client: about(s)}
			known[key] = n
			nodes = append(nodes, n)
		}
		return n
	}
	for _, h := range slices.SortedStableFunc(slices.Values(all), holdings.ByUrgency) {
		if len(h.Waiters) == 0 {
			continue
		}
		lock := viewOf(h, 0)
		for i, holder := range holdings.Holders(h) {
			to := of(holder, fmt.Sprint("holder ", i, " of ", lock.ID))
			for j, waiter := range h.Waiters {
				e := &edge{
					from: of(waiter, fmt.Sprint("waiter ", j, " of ", lock.ID)), to: to, lock: lock,
					any: holdings.IsSemaphore(h), For: sessionOf(waiter, h, j+1).For,
				}
				e.from.out, to.in = append(e.from.out, e), append(to.in, e)
			}
		}
	}
	return nodes
}

func about(s txlock.Session) string {
	name, client := clean(s.Application), clean(holdings.Client(s))
	if name != "" && client != "" {
		return name + ", " + client
	}
	return name + client
}

// findGoing finds who goes on in time: who waits for nobody, and who waits for such. A wait for a
// permit ends when any of its holders goes on.
func findGoing(nodes []*node) {
	var going []*node
	for _, n := range nodes {
		some := 0
		for _, e := range n.out {
			if e.any {
				some = 1
			} else {
				n.needs++
			}
		}
		if n.needs += some; n.needs == 0 {
			going = append(going, n)
		}
	}
	for len(going) > 0 {
		n := going[0]
		going, n.goesOn = going[1:], true
		for _, e := range n.in {
			from := e.from
			if e.any && from.met {
				continue
			}
			from.met = from.met || e.any
			if from.needs--; from.needs == 0 {
				going = append(going, from)
			}
		}
	}
}

// circlesOf finds the sets of sessions that wait for each other, and numbers them: the strongly
// connected components of more than one node, by Tarjan's algorithm, among those that do not go on.
func circlesOf(nodes []*node) (circles [][]*node) {
	findGoing(nodes)
	var stack []*node
	next := 0
	var visit func(n *node)
	visit = func(n *node) {
		next++
		n.index, n.low, n.open = next, next, true
		stack = append(stack, n)
		for _, e := range n.out {
			if e.to.goesOn {
				continue
			}
			if e.to.index == 0 {
				visit(e.to)
				n.low = min(n.low, e.to.low)
			} else if e.to.open {
				n.low = min(n.low, e.to.index)
			}
		}
		if n.low != n.index {
			return
		}
		at := slices.Index(stack, n)
		members := slices.Clone(stack[at:])
		stack = stack[:at]
		for _, m := range members {
			m.open = false
			if len(members) > 1 {
				m.circle = len(circles) + 1
			}
		}
		if len(members) > 1 {
			circles = append(circles, members)
		}
	}
	for _, n := range nodes {
		if n.index == 0 && !n.goesOn {
			visit(n)
		}
	}
	return circles
}
