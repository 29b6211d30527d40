package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// summary is the paragraph at the top. It says in words where to find what.
func (x *index) summary() string {
	sentences := []string{
		fmt.Sprintf("%d ways to lock across processes, measured side by side on one machine.", len(x.compared())),
	}
	if first, mine, found := x.fastest(); found {
		text := fmt.Sprintf("With nobody else about the fastest is %s (p50 %s)", first.Contestant, duration(first.P50))
		if first.Contestant != mine.Contestant {
			text += fmt.Sprintf("; the fastest of txlock is %s (%s)", mine.Contestant, duration(mine.P50))
		}
		sentences = append(sentences, text+".")
	}
	if main, found := x.main(results.AfterNext); found {
		if text := x.queue(main); text != "" {
			sentences = append(sentences, text)
		}
	}
	return strings.Join(sentences, " ")
}

// fastest are the fastest contestant and the fastest of txlock. The floor does not count, because
// nobody would use it.
func (x *index) fastest() (first, mine results.Uncontended, found bool) {
	for _, u := range x.Uncontended {
		group := x.group(u.Contestant)
		if u.P50 <= 0 || group == contest.Floor {
			continue
		}
		if first.P50 == 0 || u.P50 < first.P50 {
			first = u
		}
		if group == contest.TxLock && (mine.P50 == 0 || u.P50 < mine.P50) {
			mine = u
		}
	}
	return first, mine, mine.P50 > 0
}

// queue describes how the lock is handed over.
func (x *index) queue(main setting) string {
	all := x.contended(main)
	all = slices.DeleteFunc(all, func(c contended) bool { return c.p50 <= 0 || x.group(c.contestant) == contest.Floor })
	mine := slices.DeleteFunc(slices.Clone(all), func(c contended) bool {
		return x.group(
			c.contestant) != contest.TxLock
	})
	if len(mine) == 0 {
		return ""
	}
	byP50 := func(a, b contended) int { return int(a.p50 - b.p50) }
	best := slices.MinFunc(mine, byP50)
	faster := 0
	for _, c := range all {
		if c.p50 < best.p50 {
			faster++
		}
	}
	place := "nothing else hands it on faster"
	if faster > 0 {
		first := slices.MinFunc(all, byP50)
		place = fmt.Sprintf("%d of the others do it faster, first of all %s (%s)", faster, first.contestant,
			duration(first.p50))
	}
	return fmt.Sprintf("With %d contenders for one key %s hands it on in %s (p50) and keeps it held for %s of the "+
		"time; %s.",
		main.contenders, best.contestant, duration(best.p50), share(best.utilisation), place)
}

// compared are the contestants that took part in more than the measurement of many keys. For that
// one, txlock enters with other numbers of slots as well.
func (x *index) compared() (names []string) {
	tookPart := make(map[string]bool)
	for _, u := range x.Uncontended {
		tookPart[u.Contestant] = true
	}
	for _, c := range x.Contended {
		tookPart[c.Contestant] = true
	}
	for _, o := range x.Orders {
		tookPart[o.Contestant] = true
	}
	for _, f := range x.Faults {
		tookPart[f.Contestant] = true
	}
	for _, c := range x.Contestants {
		if tookPart[c.Name] {
			names = append(names, c.Name)
		}
	}
	return names
}
