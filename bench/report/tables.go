package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/txlock/txlock/bench/results"
)

// table is a table in Markdown. Its first column and the last ones, of which text says how many,
// have texts, the others figures.
type table struct {
	head []string
	text int
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// String is the table, or what stands in its place if nothing was measured.
func (t table) String() string {
	if len(t.rows) == 0 {
		return "Not measured in this run."
	}
	rule := slices.Repeat([]string{"--:"}, len(t.head))
	for i := range rule {
		if i == 0 || i >= len(rule)-t.text {
			rule[i] = "---"
		}
	}
	var lines []string
	for _, cells := range append([][]string{t.head, rule}, t.rows...) {
		escaped := make([]string, len(cells))
		for i, cell := range cells {
			escaped[i] = strings.ReplaceAll(strings.ReplaceAll(cell, "|", `\|`), "\n", " ")
		}
		lines = append(lines, "| "+strings.Join(escaped, " | ")+" |")
	}
	return strings.Join(lines, "\n")
}

// Glance is the one table to look at: the contestants that were measured with contention.
func (r *Report) Glance() string {
	t := table{head: []string{
		"contestant", "round trips", "uncontended p50", r.Trip() + " away",
		fmt.Sprintf("hand-off p50, %d contenders", r.Contenders()), "in use", "fair (Jain)", "lost updates in faults",
	}}
	for _, c := range r.Contestants {
		waiting, contended := r.most(c.Name, results.AfterNext)
		tight, _ := r.most(c.Name, results.AtOnce)
		if !contended {
			continue
		}
		near, far := find(r.Uncontended, c.Name), find(r.Network.Uncontended, c.Name)
		lost := nothing
		if slices.ContainsFunc(r.Faults, func(f results.Fault) bool { return f.Contestant == c.Name }) {
			lost = count(r.lost(func(name string) bool { return name == c.Name }))
		}
		t.add(c.Name, number(near.RoundTrips), duration(near.P50), duration(far.P50), waiting.handOff(waiting.p50),
			share(waiting.utilisation), number(tight.jain), lost)
	}
	return t.String()
}

// find is the free lock of a contestant, or nothing.
func find(all []results.Uncontended, name string) (found results.Uncontended) {
	for _, u := range all {
		if u.Contestant == name {
			found = u
		}
	}
	return found
}

// most is a contestant with the most contenders.
func (r *Report) most(name string, rejoin results.Rejoin) (most contended, found bool) {
	for _, c := range r.Contended {
		if c.Contestant == name && c.Rejoin == rejoin && c.Contenders >= most.Contenders {
			most, found = sumUpContended(c), true
		}
	}
	return most, found
}

// InTurns has txlock beside the same statements by hand.
func (r *Report) InTurns() string {
	t := table{head: []string{"contestant", "p50", "by hand", "ratio (interval)"}}
	for _, one := range r.Turns {
		t.add(one.Contestant, nanoseconds(results.Median(one.Rounds).Center),
			nanoseconds(results.Median(one.WithRounds).Center), interval(results.Ratio(one.Rounds, one.WithRounds)))
	}
	return t.String()
}

// Free has all contestants without contention, near and far.
func (r *Report) Free() string {
	t := table{text: 2, head: []string{
		"contestant", "p50", "p99", "round trips", "allocations", "p50, " + r.Trip() + " away", "waiter", "remark",
	}}
	for _, u := range r.Uncontended {
		c := r.contestants[u.Contestant]
		t.add(u.Contestant, duration(u.P50), duration(u.P99), number(u.RoundTrips), number(u.Allocs),
			duration(find(r.Network.Uncontended, u.Contestant).P50), c.Waits, c.Remark)
	}
	return t.String()
}

// Growing has the times of a lock when something grows.
func (r *Report) Growing(by string) string {
	t := table{head: []string{by}}
	for _, g := range r.Growth {
		if g.By != by {
			continue
		}
		row := []string{g.Contestant}
		t.head = t.head[:1]
		for _, p := range g.Points {
			label := tick
			if by == results.Distance {
				label = tickTime
			}
			t.head, row = append(t.head, label(p.X)), append(row, duration(p.P50))
		}
		t.add(row...)
	}
	return t.String()
}

// Waiting has the contenders for one key.
func (r *Report) Waiting() string {
	t := table{head: []string{
		"contestant", "contenders", "ask again", "hand-off p50", "p99", "in use", "locks/s", "fair (Jain)",
		"longest wait", "overlaps", "failed",
	}}
	for _, c := range r.Contended {
		s := sumUpContended(c)
		t.add(c.Contestant, count(c.Contenders), string(c.Rejoin), s.handOff(s.p50), s.handOff(s.p99),
			share(s.utilisation), number(s.perSecond), number(s.jain), duration(s.longestWait), count(s.overlaps),
			count(s.failed))
	}
	return t.String()
}

// InCrowds has the free key beside the callers of another.
func (r *Report) InCrowds() string {
	t := table{head: []string{
		"contestant", "callers", "free key p50", "p99", "hot key, locks/s", "busy sessions", "overlaps", "failed",
	}}
	for _, c := range r.Crowds {
		s := sumUpCrowd(c)
		t.add(c.Contestant, count(c.Callers), s.free(s.p50), s.free(s.p99), number(s.hot), count(s.busy),
			count(s.overlaps), count(s.failed))
	}
	return t.String()
}

// Footprint has what a process needs with many callers that hold keys, or wait.
func (r *Report) Footprint() string {
	t := table{head: []string{"contestant", "callers", "until all hold theirs", "memory of each", "of a core"}}
	for _, f := range r.Footprints {
		what, began := " hold a key each", duration(f.Began)
		if f.OneKey {
			what, began = " want one key", nothing
		}
		t.add(f.Contestant, count(f.Callers)+what, began, kilobytes(f.Memory), share(f.Processor))
	}
	return t.String()
}

// Sales has the sales of one article by so many callers of one process.
func (r *Report) Sales(callers int) string {
	var some []results.HotRow
	for _, h := range r.HotRows {
		if h.Callers == callers {
			some = append(some, h)
		}
	}
	return r.sales(some)
}

// SalesOfOne has the sales of one caller.
func (r *Report) SalesOfOne() string { return r.Sales(1) }

// FarSales has the sales of one article over a network.
func (r *Report) FarSales() string { return r.sales(r.Network.HotRows) }

func (r *Report) sales(all []results.HotRow) string {
	t := table{text: 1, head: []string{
		"contestant", "sales/s", "to the transaction by hand", "p50", "p99", "failed", "stock and sales",
	}}
	for _, h := range all {
		s := sumUpHotRow(h)
		verdict := "right"
		if s.complaint != "" {
			verdict = "**" + s.complaint + "**"
		}
		t.add(h.Contestant, number(s.perSecond), factor(r.toHand(h, all)), duration(s.p50), duration(s.p99),
			count(s.failed), verdict)
	}
	return t.String()
}

// toHand compares sales with those of the same transaction by hand on the same server, or is 0.
func (r *Report) toHand(h results.HotRow, all []results.HotRow) float64 {
	for _, other := range all {
		if other.Contestant == "transaction by hand, "+r.contestants[h.Contestant].Server &&
			other.Callers == h.Callers {
			return sumUpHotRow(h).perSecond / sumUpHotRow(other).perSecond
		}
	}
	return 0
}

// Broken has what became of the data, and how long the lock was away, when something broke.
func (r *Report) Broken() string {
	t := table{head: append([]string{"contestant"}, results.FaultNames...)}
	for _, c := range r.Contestants {
		row, found := []string{c.Name}, false
		for _, fault := range results.FaultNames {
			cell := nothing
			for _, f := range r.Faults {
				if f.Contestant == c.Name && f.Fault == fault {
					cell, found = outcome(f), true
				}
			}
			row = append(row, cell)
		}
		if found {
			t.add(row...)
		}
	}
	return t.String()
}

// outcome is the slowest trial of a fault, and what all have lost.
func outcome(f results.Fault) string {
	var longest time.Duration
	told, never := 0, 0
	for _, trial := range f.Trials {
		longest = max(longest, trial.Regained)
		if trial.Regained < 0 {
			never++
		}
		if trial.Told {
			told++
		}
	}
	parts := []string{"after " + duration(longest)}
	if longest == 0 {
		parts[0] = "at once"
	}
	if never > 0 {
		parts[0] = "not within " + duration(f.Trials[0].Limit)
	}
	if lost := lostIn(f); lost > 0 {
		parts = append(parts, fmt.Sprintf("**%d lost**", lost))
	}
	if told > 0 {
		parts = append(parts, "holder told")
	}
	return strings.Join(parts, ", ")
}

func lostIn(f results.Fault) (lost int) {
	for _, trial := range f.Trials {
		lost += max(0, trial.Lost)
	}
	return lost
}

// NotMeasured has who took no part in what, and whose calls failed.
func (r *Report) NotMeasured() string {
	if len(r.Missing) == 0 {
		return "Every contestant took part in everything, and no call failed."
	}
	t := table{text: 2, head: []string{"contestant", "measurement", "reason"}}
	for _, m := range r.Missing {
		t.add(m.Contestant, m.Measurement, m.Reason)
	}
	return t.String()
}
