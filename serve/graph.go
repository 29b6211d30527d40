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
	stuck  bool // in a circle, or between two
}

// edge says that a session waits for another at a lock.
type edge struct {
	from, to *node
	lock     lockView
	any      bool // any holder of the lock will do
	For      string
}

func (e *edge) inCircle() bool { return e.from.stuck && e.to.stuck }

// edgeView is a line of the list.
type edgeView struct {
	ID, Waiter, WaiterClient, Lock, URL, Holder, HolderClient, For string

	Circle bool
}

// graph is the view of who waits for whom.
type graph struct {
	At     string
	Edges  []edgeView
	More   int
	Circle []string // sessions that wait for each other, in words
}

func graphOf(s *state) graph {
	g, others := graph{At: s.when()}, []edgeView(nil)
	nodes := connect(s.holdings)
	findCircles(nodes)
	for i, n := range nodes {
		for j, e := range n.out { // several at one lock that is shared
			if e.inCircle() {
				g.Circle = append(g.Circle, fmt.Sprintf("%s waits at %s for %s", n.label, e.lock.Name, e.to.label))
			}
			if len(g.Edges)+len(others) == mostEdges {
				g.More++
				continue
			}
			view := edgeView{
				ID: fmt.Sprint("e", e.lock.ID, "-", i, "-", j), URL: e.lock.URL, Lock: e.lock.Name, For: e.For,
				Waiter: n.label, WaiterClient: n.client, Holder: e.to.label, HolderClient: e.to.client,
				Circle: e.inCircle(),
			}
			if view.Circle { // these come first
				g.Edges = append(g.Edges, view)
			} else {
				others = append(others, view)
			}
		}
	}
	g.Edges = append(g.Edges, others...)
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

// findCircles finds the sessions that wait for each other. At first all are stuck. Who waits for
// nobody that is stuck goes on in time. Who is awaited by nobody that is stuck is behind a circle.
func findCircles(nodes []*node) {
	for _, n := range nodes {
		n.stuck = true
	}
	for _, free := range []func(*node) bool{(*node).goesOn, (*node).isBehind} {
		for changed := true; changed; {
			changed = false
			for _, n := range nodes {
				if n.stuck && free(n) {
					n.stuck, changed = false, true
				}
			}
		}
	}
}

// goesOn tells whether its wait ends. That for a permit ends when any of its holders goes on.
func (n *node) goesOn() bool {
	waits, any := false, false
	for _, e := range n.out {
		if e.to.stuck && !e.any {
			return false
		}
		waits, any = waits || e.any, any || e.any && !e.to.stuck
	}
	return !waits || any
}

func (n *node) isBehind() bool {
	return !slices.ContainsFunc(n.in, func(e *edge) bool { return e.from.stuck })
}
