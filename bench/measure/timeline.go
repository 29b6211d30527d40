package measure

import (
	"cmp"
	"slices"
	"time"

	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/results"
)

// timeline is one run as the lock saw it.
type timeline struct {
	began, ended int64
	contenders   int
}

// analyse fills a round with what follows from the times of asking, entering and leaving. It
// ignores what was over when the run began, while contenders were still joining, and what came
// after its end.
func analyse(round *results.ContendedRound, all []crew.Acquisition, t timeline) {
	round.Took = time.Duration(t.ended - t.began)
	all = t.until(all)
	var entered []crew.Acquisition
	served := make([]int, t.contenders)
	for _, a := range all {
		if a.In != 0 {
			entered = append(entered, a)
		}
		if came(a) < t.began {
			continue
		}
		round.LongestWait = max(round.LongestWait, time.Duration(came(a)-a.Asked))
		if a.In != 0 {
			round.Acquisitions++
			served[a.Contender]++
		}
	}
	round.Jain = jain(served)
	slices.SortFunc(entered, func(a, b crew.Acquisition) int { return cmp.Compare(a.In, b.In) })
	round.Overlaps, round.Utilisation = t.occupied(entered)
	gaps, cut := t.handOffs(all, entered)
	round.HandOffs, round.Cut = len(gaps), cut
	round.HandOffP50 = time.Duration(results.Quantile(gaps, 0.5))
	round.HandOffP99 = time.Duration(results.Quantile(gaps, 0.99))
}

// until returns the acquisitions as they stood at the end of the run. Contenders that entered later
// were still waiting.
func (t timeline) until(all []crew.Acquisition) (seen []crew.Acquisition) {
	for _, a := range all {
		if a.Asked > t.ended {
			continue
		}
		if a.In > t.ended {
			a.In, a.Out = 0, 0
		}
		if a.In == 0 {
			a.At = min(a.At, t.ended)
		}
		seen = append(seen, a)
	}
	return seen
}

// occupied counts the entries while another was inside, and returns the share of the run in which
// anybody was inside.
func (t timeline) occupied(entered []crew.Acquisition) (overlaps int, share float64) {
	var held, free int64 // free: since when nobody is inside
	for _, a := range entered {
		if a.In < free {
			overlaps++
		}
		held += max(0, min(a.Out, t.ended)-max(a.In, free, t.began))
		free = max(free, a.Out)
	}
	return overlaps, float64(held) / float64(t.ended-t.began)
}

// handOffs are the times from each release to the next entry, if anybody was waiting at the
// release. A hand-off that had not happened by the end counts with the time until the end: leaving
// it out would favour slow locks. cut is their number.
func (t timeline) handOffs(all, entered []crew.Acquisition) (gaps []int64, cut int) {
	for i, a := range entered {
		if i == len(entered)-1 {
			if a.Out < t.ended && waiting(all, a.Out) {
				gaps, cut = append(gaps, t.ended-a.Out), 1
			}
			break
		}
		next := entered[i+1]
		// If the next contender asked later, a slower one may have been waiting already.
		if next.In >= max(a.Out, t.began) && (next.Asked <= a.Out || waiting(all, a.Out)) {
			gaps = append(gaps, next.In-a.Out)
		}
	}
	return gaps, cut
}

// came is when a contender entered, or gave up.
func came(a crew.Acquisition) int64 {
	if a.In == 0 {
		return a.At
	}
	return a.In
}

// waiting reports whether anybody was waiting at a moment.
func waiting(all []crew.Acquisition, moment int64) bool {
	return slices.ContainsFunc(all, func(a crew.Acquisition) bool {
		return a.Asked <= moment && (a.In > moment || a.In == 0 && a.At > moment)
	})
}

// jain is Jain's index of fairness, divided by the best value that this number of acquisitions can
// reach: fewer acquisitions than contenders cannot be shared equally.
func jain(served []int) float64 {
	var sum, squares float64
	for _, n := range served {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return 0
	}
	contenders := float64(len(served))
	return sum * sum / (contenders * squares) / min(1, sum/contenders)
}
