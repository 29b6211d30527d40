package measure

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/results"
)

// timeline is a run, as the lock saw it.
type timeline struct {
	began, ended int64
	contenders   int
	exclusive    bool // one at a time is inside; else hand-off and overlaps mean nothing
}

// analyse fills a round with what can be told from who asked, entered and left when. What was over when the run began, as
// the contenders came one after the other, does not count.
func analyse(round *results.ContendedRound, all []crew.Acquisition, t timeline) {
	round.Took = time.Duration(t.ended - t.began)
	var entered, counted []crew.Acquisition
	served := make([]int, t.contenders)
	for _, a := range all {
		until := a.In
		if a.In == 0 {
			until = a.At // it waited to the end, or to an error
		} else {
			entered = append(entered, a)
		}
		if until < t.began {
			continue
		}
		round.LongestWait = max(round.LongestWait, time.Duration(until-a.Asked))
		if a.In != 0 {
			counted = append(counted, a)
			served[a.Contender]++
		}
	}
	round.Acquisitions = len(counted)
	round.Jain = jain(served)
	if !t.exclusive {
		return
	}
	byEntering := func(a, b crew.Acquisition) int { return cmp.Compare(a.In, b.In) }
	slices.SortFunc(entered, byEntering)
	slices.SortFunc(counted, byEntering)
	round.Inversions, round.Displacement = disorder(counted)
	var held int64
	for i, a := range entered {
		held += max(0, min(a.Out, t.ended)-max(a.In, t.began))
		// When the run ends, so does everybody's context, and some locks with it, in the middle of work.
		if i > 0 && a.In < entered[i-1].Out && a.In < t.ended {
			round.Overlaps++
		}
	}
	round.Utilisation = float64(held) / float64(t.ended-t.began)
	gaps := handOffs(all, entered, t)
	round.HandOffP50 = time.Duration(results.Quantile(gaps, 0.5))
	round.HandOffP99 = time.Duration(results.Quantile(gaps, 0.99))
}

// handOffs are the times from each release to the next one inside, if anybody had asked by the release. The last release
// counts with what had passed at the end: a hand-off that took too long to be seen is not left out.
func handOffs(all, entered []crew.Acquisition, t timeline) (gaps []int64) {
	for i, a := range entered {
		if i == len(entered)-1 {
			if a.Out < t.ended && waiting(all, a.Out) {
				gaps = append(gaps, t.ended-a.Out)
			}
			break
		}
		next := entered[i+1]
		// If the next one came later, somebody else may have been waiting who was slower.
		if next.In >= max(a.Out, t.began) && (next.Asked <= a.Out || waiting(all, a.Out)) {
			gaps = append(gaps, next.In-a.Out)
		}
	}
	return gaps
}

// waiting reports whether anybody was waiting at a moment.
func waiting(all []crew.Acquisition, moment int64) bool {
	return slices.ContainsFunc(all, func(a crew.Acquisition) bool {
		return a.Asked <= moment && (a.In > moment || a.In == 0 && a.At > moment)
	})
}

// jain is Jain's index of fairness: 1 if all have as much, 1/n if one has all.
func jain(served []int) float64 {
	var sum, squares float64
	for _, n := range served {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(served)) * squares)
}

// disorder compares the order of entering with the order of asking: pairs in the wrong order per acquisition, and how far
// the places are apart on average.
func disorder(entered []crew.Acquisition) (inversions, displacement float64) {
	n := len(entered)
	if n == 0 {
		return 0, 0
	}
	byAsking := make([]int, n) // places in entered
	for i := range byAsking {
		byAsking[i] = i
	}
	slices.SortStableFunc(byAsking, func(a, b int) int { return cmp.Compare(entered[a].Asked, entered[b].Asked) })
	places := newFenwick(n)
	pairs := 0
	for place, i := range byAsking {
		displacement += math.Abs(float64(place - i))
		pairs += place - places.upTo(i) // of those who asked before, who entered after
		places.add(i)
	}
	return float64(pairs) / float64(n), displacement / float64(n)
}

// fenwick counts marked places up to one, in logarithmic time.
type fenwick []int

func newFenwick(n int) fenwick { return make(fenwick, n+1) }

func (f fenwick) add(place int) {
	for i := place + 1; i < len(f); i += i & -i {
		f[i]++
	}
}

func (f fenwick) upTo(place int) (count int) {
	for i := place + 1; i > 0; i -= i & -i {
		count += f[i]
	}
	return count
}
