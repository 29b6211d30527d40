package measure

import (
	"context"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/results"
)

// MeasureHandOffs measures how often goroutines of one process can lock and unlock one key, if they
// do nothing else.
func (l *Lab) MeasureHandOffs(ctx context.Context) error {
	var all []*results.HandOff
	for _, c := range l.in(contest.Crowd) {
		all = append(all, &results.HandOff{Contestant: c.Name, Goroutines: l.HandOffs.Goroutines})
	}
	err := turns(ctx, l, "hand-offs", l.HandOffs.Rounds, all, func(h *results.HandOff) string {
		return h.Contestant
	}, func(c contest.Contestant, h *results.HandOff) error {
		report, err := l.gather(ctx, crew.Crowd{
			Entrant: l.entrant(c, lease, h.Goroutines), Callers: h.Goroutines, Key: hotKey,
			Board: l.board.Path(), Rehearsal: rehearsal(h.Goroutines),
		}, func() { crew.Wait(ctx, l.HandOffs.For) })
		if err != nil {
			return err
		}
		l.failed(c, "hand-offs", report)
		h.PerSecond = append(h.PerSecond, float64(report.Crowded.Hot)/report.Crowded.Took.Seconds())
		h.Overlaps += report.Crowded.Overlaps
		h.Failed += report.Failed
		return nil
	})
	for _, h := range all {
		if len(h.PerSecond) > 0 {
			l.run.HandOffs = append(l.run.HandOffs, *h)
		}
	}
	return err
}
