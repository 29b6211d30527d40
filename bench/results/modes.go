package results

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Modes splits rounds into fast and slow ones, where there are two kinds: a machine takes one of
// two times for a round trip, by whether the two ends of a connection share a core. Both are empty
// where the rounds are of one kind. The split is the one that leaves the least variance of the
// logarithms within the two parts.
func Modes(rounds []float64) (fast, slow []float64) {
	sorted := slices.Sorted(slices.Values(rounds))
	least, split := math.Inf(1), 0
	for i := 1; i < len(sorted); i++ {
		if within := spread(sorted[:i]) + spread(sorted[i:]); within < least {
			least, split = within, i
		}
	}
	fast, slow = sorted[:split], sorted[split:]
	// A kind has an eighth of the rounds, and a round trip across cores takes at least a third
	// longer, and at most four times as long. What differs more was disturbed.
	few, ratio := max(3, len(sorted)/8), Median(slow).Center/Median(fast).Center
	if len(fast) < few || len(slow) < few || ratio < 4.0/3 || ratio > 4 {
		return nil, nil
	}
	return fast, slow
}

// spread is the sum of squared distances from the mean, of logarithms.
func spread(sample []float64) (sum float64) {
	mean := 0.0
	for _, x := range sample {
		mean += math.Log(x) / float64(len(sample))
	}
	for _, x := range sample {
		sum += (math.Log(x) - mean) * (math.Log(x) - mean)
	}
	return sum
}

// resamples is how often a sample is drawn anew for an interval.
const resamples = 2000

// RatioOfMedians is the ratio of the medians of two samples that are not paired, with the interval
// that a bootstrap gives. It is empty if a sample is.
func RatioOfMedians(a, b []float64) Interval {
	if len(a) == 0 || len(b) == 0 || median(b) <= 0 {
		return Interval{}
	}
	random := rand.New(rand.NewPCG(1, uint64(len(a))<<32|uint64(len(b)))) // the same figures in each report
	drawA, drawB := newBootstrap(a), newBootstrap(b)
	ratios := make([]float64, resamples)
	for i := range ratios {
		ratios[i] = drawA.median(random) / drawB.median(random)
	}
	slices.Sort(ratios)
	tail := int((1 - wanted) / 2 * resamples)
	return Interval{median(a) / median(b), ratios[tail], ratios[resamples-1-tail], wanted}
}

// bootstrap draws samples of the size of one, with replacement.
type bootstrap struct {
	sorted []float64
	rank   []int // in sorted, by the position in the sample
	drawn  []int // how often, by rank
}

func newBootstrap(from []float64) bootstrap {
	b := bootstrap{slices.Sorted(slices.Values(from)), make([]int, len(from)), make([]int, len(from))}
	for i, value := range from {
		b.rank[i], _ = slices.BinarySearch(b.sorted, value) // that of the first of equals does as well
	}
	return b
}

// median is that of a new sample.
func (b bootstrap) median(random *rand.Rand) float64 {
	clear(b.drawn)
	for range b.rank {
		b.drawn[b.rank[random.IntN(len(b.rank))]]++
	}
	rank, upTo := 0, b.drawn[0] // and how many are drawn of the ranks up to this one
	at := func(place int) float64 {
		for ; upTo <= place; upTo += b.drawn[rank] {
			rank++
		}
		return b.sorted[rank]
	}
	half := len(b.rank) / 2
	if len(b.rank)%2 == 1 {
		return at(half)
	}
	return (at(half-1) + at(half)) / 2
}

func median(sample []float64) float64 {
	sorted := slices.Sorted(slices.Values(sample))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}
