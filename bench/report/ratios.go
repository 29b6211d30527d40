package report

import (
	"fmt"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// comparison is a contestant of txlock beside another one.
type comparison struct {
	contestant, with  string
	results.Interval  // of calls in turns if these were measured, else of rounds
	inTurns, inRounds results.Interval
	// fast and slow are of the rounds in which a round trip was fast, and slow, with both. They are
	// empty where the rounds are not of two kinds.
	fast, slow results.Interval
}

// beside finds the contestant to compare one of txlock's with.
type beside func(results.Contestant) (name string, found bool)

func besideFloor(c results.Contestant) (string, bool) { return c.Floor, c.Floor != "" }

func besideBare(c results.Contestant) (string, bool) {
	return c.Bare, c.Bare != "" && c.Bare != c.Floor
}

// compare compares one contestant with another, by the rounds of their uncontended cycles. Rounds
// with the same index were measured side by side.
func compare(all []results.Uncontended, name, with string) (c comparison) {
	a, b := roundsOf(all, name), roundsOf(all, with)
	c = comparison{contestant: name, with: with, Interval: results.Ratio(a, b)}
	fastA, slowA := results.Modes(a)
	fastB, slowB := results.Modes(b)
	c.fast, c.slow = results.RatioOfMedians(fastA, fastB), results.RatioOfMedians(slowA, slowB)
	return c
}

func roundsOf(all []results.Uncontended, name string) []float64 {
	for _, u := range all {
		if u.Contestant == name {
			return u.Rounds
		}
	}
	return nil
}

// comparisons are those of the contestants of txlock whose uncontended times were measured.
func (x *index) comparisons(with beside) (all []comparison) {
	for _, c := range x.Contestants {
		if contest.Group(c.Group) != contest.TxLock {
			continue
		}
		if other, found := with(c); found {
			if one := compare(x.Uncontended, c.Name, other); one.Center > 0 {
				one.inRounds, one.inTurns = one.Interval, x.inTurns(c.Name, other)
				if one.inTurns.Center > 0 {
					one.Interval = one.inTurns
				}
				all = append(all, one)
			}
		}
	}
	return all
}

func (x *index) inTurns(name, with string) results.Interval {
	for _, t := range x.Turns {
		if t.Contestant == name && t.With == with {
			return results.Ratio(t.Rounds, t.WithRounds)
		}
	}
	return results.Interval{}
}

func (x *index) toFloor() []comparison { return x.comparisons(besideFloor) }

func (x *index) toBare() []comparison { return x.comparisons(besideBare) }

func (x *index) toNative() []comparison { return x.comparisons(x.native) }

// handOffRatio compares the hand-offs of two contestants, with contenders that ask again when the
// next one is inside. It is empty if they were not measured in the same rounds.
func (x *index) handOffRatio(name, with string, contenders int) results.Interval {
	p50s := func(of string) (rounds []float64) {
		for _, c := range x.Contended {
			if c.Contestant == of && c.Contenders == contenders && c.Hold == time.Millisecond &&
				c.Rejoin == results.AfterNext {
				for _, round := range c.Rounds {
					rounds = append(rounds, float64(round.HandOffP50))
				}
			}
		}
		return rounds
	}
	return results.Ratio(p50s(name), p50s(with))
}

// few and many are the numbers of contenders that are compared with more rounds.
const few, many = 8, 64

// ratioTable has all ratios of txlock to what is written by hand. Cells are texts, and the first is
// the contestant's name.
func (x *index) ratioTable() (head []string, rows [][]string) {
	head = []string{
		"beside", "in turns", "in rounds", "fast round trips", "slow round trips",
		fmt.Sprintf("hand-off, %d", few), fmt.Sprintf("hand-off, %d", many), "over a network",
	}
	for _, with := range []beside{besideFloor, besideBare} {
		for _, c := range x.comparisons(with) {
			rows = append(rows, []string{
				c.contestant, c.with, brief(c.inTurns), brief(c.inRounds), brief(c.fast), brief(c.slow),
				brief(x.handOffRatio(c.contestant, c.with, few)), brief(x.handOffRatio(c.contestant, c.with, many)),
				brief(compare(x.Network.Uncontended, c.contestant, c.with).Interval),
			})
		}
	}
	return head, rows
}

// brief is an interval for a narrow cell.
func brief(i results.Interval) string {
	switch {
	case i.Center == 0:
		return nothing
	case i.Confidence == 0:
		return fmt.Sprintf("%.2f", i.Center)
	default:
		return fmt.Sprintf("%.2f (%.2f–%.2f)", i.Center, i.Lo, i.Hi)
	}
}

// ratioTableBlock has the same table for the page.
func (x *index) ratioTableBlock() block {
	head, rows := x.ratioTable()
	t := &table{Head: figures(head...)}
	for _, row := range rows {
		t.Rows = append(t.Rows, x.row(row[0], figures(row[1:]...)...))
	}
	return block{Table: t, Folded: "All ratios, with their intervals", Text: "A round trip takes one of two times " +
		"here, by whether both ends of a connection share a core. In turns means call by call, so that both meet the " +
		"same machine. Fast and slow compare the rounds of one kind: " +
		"ratios of medians, with the interval of a bootstrap. The others are medians of the ratios of rounds that " +
		"were measured side by side; their interval has 95 %, or is the whole range of fewer than six rounds."}
}
