package report

import (
	"time"

	"github.com/txlock/txlock/bench/results"
)

// contended summarises a contended run over all rounds.
type contended struct {
	contestant               string
	contenders               int
	p50, p99                 time.Duration // medians of the rounds
	perSecond, utilisation   float64
	serverCPU                time.Duration // per acquisition
	connections              int
	inversions, displacement float64
	longestWait              time.Duration // of all rounds
	jain                     float64
	overlaps, failed         int
	atLeast                  bool // the end of the run cut off most of the hand-offs
}

// handOff formats the time of a hand-off.
func (c contended) handOff(d time.Duration) string {
	if c.atLeast && d > 0 {
		return "> " + duration(d)
	}
	return duration(d)
}

func sumUp(c results.Contended) contended {
	s := contended{contestant: c.Contestant, contenders: c.Contenders}
	var took, processor time.Duration
	acquisitions, handOffs, cut := 0, 0, 0
	for _, r := range c.Rounds {
		took += r.Took
		processor += r.ServerCPU
		acquisitions += r.Acquisitions
		s.connections = max(s.connections, r.Connections)
		s.longestWait = max(s.longestWait, r.LongestWait)
		s.overlaps += r.Overlaps
		s.failed += r.Failed
		handOffs += r.HandOffs
		cut += r.Cut
	}
	s.atLeast = 2*cut >= max(1, handOffs)
	if took > 0 {
		s.perSecond = float64(acquisitions) / took.Seconds()
	}
	if acquisitions > 0 {
		s.serverCPU = processor / time.Duration(acquisitions)
	}
	median := func(of func(results.ContendedRound) float64) float64 {
		var values []float64
		for _, r := range c.Rounds {
			values = append(values, of(r))
		}
		return results.Median(values).Center
	}
	s.p50 = time.Duration(median(func(r results.ContendedRound) float64 { return float64(r.HandOffP50) }))
	s.p99 = time.Duration(median(func(r results.ContendedRound) float64 { return float64(r.HandOffP99) }))
	s.utilisation = median(func(r results.ContendedRound) float64 { return r.Utilisation })
	s.inversions = median(func(r results.ContendedRound) float64 { return r.Inversions })
	s.displacement = median(func(r results.ContendedRound) float64 { return r.Displacement })
	s.jain = median(func(r results.ContendedRound) float64 { return r.Jain })
	return s
}
