package measure

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/results"
)

func analysed(contenders int, ended int64, all ...crew.Acquisition) (round results.ContendedRound) {
	analyse(&round, all, timeline{ended: ended, contenders: contenders})
	return round
}

func TestHandOffsCoverEveryGap(t *testing.T) {
	round := analysed(3, 200,
		crew.Acquisition{Contender: 0, Asked: 0, In: 10, Out: 20, At: 21},
		crew.Acquisition{Contender: 1, Asked: 5, In: 25, Out: 35, At: 36},  // hand-off: 5
		crew.Acquisition{Contender: 2, Asked: 60, In: 70, Out: 80, At: 81}, // nobody was waiting at 35: no hand-off
		crew.Acquisition{Contender: 0, Asked: 75, At: 200},                 // still waits: 120 at least
	)
	require.Equal(t, 5*time.Nanosecond, round.HandOffP50)
	require.Equal(t, 120*time.Nanosecond, round.HandOffP99, "a hand-off that did not come to its end counts")
	require.Equal(t, 125*time.Nanosecond, round.LongestWait, "and so does who still waits")
	require.InDelta(t, 30.0/200, round.Utilisation, 1e-9)
	require.Equal(t, 3, round.Acquisitions)
	require.Zero(t, round.Overlaps)
}

func TestALatecomerWhoIsFasterIsNoExcuse(t *testing.T) {
	round := analysed(3, 100,
		crew.Acquisition{Contender: 0, Asked: 0, In: 1, Out: 10, At: 10},
		crew.Acquisition{Contender: 1, Asked: 5, In: 90, Out: 95, At: 96},
		crew.Acquisition{Contender: 0, Asked: 20, In: 40, Out: 50, At: 50},
	)
	require.Equal(t, 30*time.Nanosecond, round.HandOffP50, "1 was waiting at 10, and 0 came and was inside at 40")
	require.Equal(t, 40*time.Nanosecond, round.HandOffP99)
}

func TestAHandOffThatDoesNotComeIsNotLeftOut(t *testing.T) {
	var round results.ContendedRound
	analyse(&round, []crew.Acquisition{
		{Contender: 0, Asked: 0, In: 1, Out: 10, At: 10}, // before the run began
		{Contender: 1, Asked: 2, At: 520},
	}, timeline{began: 100, ended: 500, contenders: 2})
	require.Zero(t, round.Acquisitions)
	require.Equal(t, 490*time.Nanosecond, round.HandOffP50, "at least")
	require.Zero(t, round.Utilisation)
}

func TestTwoInsideAtATimeAreSeen(t *testing.T) {
	require.Equal(t, 1, analysed(2, 100,
		crew.Acquisition{Contender: 0, In: 10, Out: 30, At: 30},
		crew.Acquisition{Contender: 1, In: 20, Out: 40, At: 40},
	).Overlaps)
}

func TestALongOneIsOverlappedByAllThatComeMeanwhile(t *testing.T) {
	round := analysed(3, 100,
		crew.Acquisition{Contender: 0, In: 10, Out: 60, At: 60},
		crew.Acquisition{Contender: 1, In: 20, Out: 30, At: 30},
		crew.Acquisition{Contender: 2, In: 40, Out: 50, At: 50},
	)
	require.Equal(t, 2, round.Overlaps)
	require.InDelta(t, 0.5, round.Utilisation, 1e-9, "held is held, however many hold it")
}

func TestWhatComesAfterTheEndDoesNotCount(t *testing.T) {
	round := analysed(2, 100,
		crew.Acquisition{Contender: 0, Asked: 0, In: 10, Out: 50, At: 51},
		crew.Acquisition{Contender: 1, Asked: 20, In: 120, Out: 130, At: 131},
	)
	require.Equal(t, 1, round.Acquisitions)
	require.Equal(t, 50*time.Nanosecond, round.HandOffP50, "at least")
	require.Equal(t, 1, round.Cut)
	require.Equal(t, 80*time.Nanosecond, round.LongestWait)
}

func TestJain(t *testing.T) {
	require.InDelta(t, 1, jain([]int{5, 5, 5, 5}), 1e-9)
	require.InDelta(t, 0.25, jain([]int{20, 0, 0, 0}), 1e-9)
	require.InDelta(t, 1, jain([]int{1, 0, 1, 0}), 1e-9, "two cannot be shared out among four")
	require.Zero(t, jain([]int{0, 0}))
}
