package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// Markdown writes the short table of a run, for docs/benchmarks.md: Lock and Do of txlock on each
// server, the databases' own locks, and the best of each other group.
func Markdown(w io.Writer, run results.Run) error {
	x := newIndex(run)
	handOff, atOnce := "hand-off p50", make(map[string]contended)
	waiting := make(map[string]contended)
	if main, found := x.main(results.AfterNext); found {
		handOff = fmt.Sprintf("hand-off p50, %d contenders", main.contenders)
		for _, c := range x.contended(main) {
			waiting[c.contestant] = c
		}
	}
	if main, found := x.main(results.AtOnce); found {
		for _, c := range x.contended(main) {
			atOnce[c.contestant] = c
		}
	}
	var b strings.Builder
	line := func(cells ...string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line("contestant", "uncontended p50", handOff, "utilisation", "fair (Jain)", "orders/s", "books",
		"lost updates in faults")
	line("---", "--:", "--:", "--:", "--:", "--:", "---", "--:")
	for _, name := range x.selected(waiting) {
		c := waiting[name]
		fairness := atOnce[name].jain
		if len(atOnce) == 0 {
			fairness = c.jain
		}
		orders, books := x.books(name)
		lost := nothing
		if n, tookPart := x.losses(name); tookPart {
			lost = count(n)
		}
		line(strings.ReplaceAll(name, "|", `\|`), duration(x.uncontended[name].P50), c.handOff(c.p50),
			share(c.utilisation),
			jain(fairness), orders, books, lost)
	}
	x.writeRatios(&b)
	x.writeCrowds(&b)
	fmt.Fprintf(&b, "\n%s\n", x.provenance())
	_, err := io.WriteString(w, b.String())
	return err
}

// selected are the rows of the short table. The best of a group has the fastest hand-off, or the
// fastest cycle if no hand-off was measured.
func (x *index) selected(waiting map[string]contended) (names []string) {
	compared := x.compared()
	cost := func(name string) time.Duration {
		const none = time.Duration(1 << 62)
		if c := waiting[name]; c.p50 > 0 {
			return c.p50
		}
		if u := x.uncontended[name]; u.P50 > 0 && len(waiting) == 0 {
			return u.P50
		}
		return none
	}
	for _, group := range contest.Groups {
		some := slices.DeleteFunc(slices.Clone(compared), func(name string) bool { return x.group(name) != group })
		switch group {
		case contest.TxLock:
			some = slices.DeleteFunc(some, func(name string) bool { return strings.HasPrefix(name, "txlock Rows") })
		case contest.Native:
		default:
			if len(some) > 0 {
				some = []string{slices.MinFunc(some, func(a, b string) int { return cmp.Compare(cost(a), cost(b)) })}
			}
		}
		names = append(names, some...)
	}
	return names
}

// books are the orders per second in the replay of all orders, and whether the books were right.
func (x *index) books(name string) (perSecond, verdict string) {
	all := results.Orders{}
	for _, o := range x.Orders {
		if o.Contestant == name {
			all.Rounds = append(all.Rounds, o.Rounds...)
		}
	}
	rate, complaint := replayed(all)
	switch {
	case len(all.Rounds) == 0:
		return nothing, nothing
	case complaint != "":
		return number(rate), "**wrong**"
	default:
		return number(rate), "right"
	}
}

// provenance says where the figures come from.
func (x *index) provenance() string {
	var versions []string
	for _, s := range x.Servers {
		versions = append(versions, strings.TrimSpace(s.Name+" "+s.Version))
	}
	text := fmt.Sprintf("Measured %s (%s run, seed %d)", date(x.Started), cmp.Or(x.Mode, "unnamed"), x.Seed)
	if m := x.Machine; m.CPU != "" {
		text += fmt.Sprintf(" on %s, %d cores, %s", m.CPU, m.Cores, m.Go)
	}
	if len(versions) > 0 {
		text += "; " + strings.Join(versions, ", ")
	}
	return text + "."
}
