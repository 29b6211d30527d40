package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/servers"
)

// toldAt is a history in which the network cuts off a holder, which learns of the loss at told
// milliseconds. 1901 is in time. At 2001 another gets the lock.
func toldAt(told int64) *epoch {
	o := lockAt(1, 10, 5)
	o.Outcome, o.Lost, o.Released, o.Return = failed, told, told+10, told+11
	e := made(o, lockAt(2, 2000, 6))
	e.Faults = []fault{{networkDrop, 1, 20e6, 2100e6}}
	return e
}

// If a busy machine does not run a process, the consequences are no broken promise. A stall is no
// excuse if it is too short, comes at another time, or hits another process.
func TestCheckersAllowWhatStallsExplain(t *testing.T) {
	late := func() *epoch { return toldAt(2190) }
	overtaken := func() *epoch {
		waiter := lockAt(1, 10, 9)
		waiter.Granted, waiter.Released, waiter.Return = 1000, 1001, 1002
		return made(waiter, lockAt(2, 100, 5), lockAt(3, 200, 6), lockAt(4, 300, 7))
	}
	refused := func() *epoch {
		o := do(1, 300, 0)
		o.Outcome, o.Error = failed, "connection reset"
		return made(o)
	}
	lost := func() *epoch {
		o := lockAt(1, 10, 5)
		o.Outcome, o.Released, o.Lost, o.Return = failed, 1500, 1400, 1501
		return made(o, lockAt(2, 1200, 6))
	}
	for _, test := range []struct {
		name, rule string
		history    func() *epoch
		from, to   int64 // a stall that explains the history
		short      int64 // an end at which the stall is too short to explain it
	}{
		{"a holder that is told too late", ruleBelief, late, 1890e6, 2189e6, 2100e6},
		{"a waiter overtaken by everybody", ruleQueue, overtaken, 10e6, 180e6, 40e6},
		{"an error", ruleErrors, refused, 20e6, 280e6, 120e6},
		{"a loss", ruleErrors, lost, 100e6, 1390e6, 300e6},
	} {
		t.Run(test.name, func(t *testing.T) {
			with := func(stalls ...fault) []string {
				e := test.history()
				e.Stalls = stalls
				return checked(e)
			}
			require.Empty(t, with(fault{processStalled, 1, test.from, test.to}))
			require.Empty(t, with(fault{processStalled, everybody, test.from, test.to}))
			require.Contains(t, with(), test.rule)
			ends := test.rule == ruleErrors // of sessions, which is all that a server does that was not run
			require.Equal(t, ends, len(with(fault{serverStalled, everybody, test.from, test.to})) == 0)
			require.Contains(t, with(fault{processStalled, 1, test.from, test.short}), test.rule)
			require.Contains(t, with(fault{processStalled, 7, test.from, test.to}), test.rule)
			require.Contains(t, with(fault{processStalled, 1, 9000e6, 9900e6}), test.rule)
		})
	}
}

// A stall makes a holder late only by its length minus the margin, the tenth of the lease that the
// holder had left.
func TestStallsExcuseWhatExceedsTheMargin(t *testing.T) {
	for _, test := range []struct {
		name     string
		told     int64
		from, to int64 // the stall
		excused  bool
	}{
		{"no margin, and a short stall", 2021, 1991e6, 2021e6, false},
		{"no margin, and a short stall in the time of the margin", 2021, 1920e6, 1950e6, false},
		{"no margin, and a long stall", 2160, 1960e6, 2160e6, false},
		{"a short stall before the notice, which is early enough still", 2000, 1960e6, 1990e6, true},
		{"a stall from before the notice was due, which comes just after it", 2190, 1850e6, 2180e6, true},
		{"a stall that has one on both sides that is not reported", 2124, 1925e6, 2100e6, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := toldAt(test.told)
			e.Stalls = []fault{{processStalled, 1, test.from, test.to}}
			if test.excused {
				require.Empty(t, checked(e))
				return
			}
			require.Equal(t, []string{ruleBelief}, checked(e))
		})
	}
}

func TestStallsAreAddedUpOnce(t *testing.T) {
	e := &epoch{Stalls: inOrder([]fault{
		{processStalled, 1, 30, 50},
		{processStalled, everybody, 10, 40},
		{processStalled, 1, 15, 20},
		{processStalled, 2, 0, 90},
	})}
	require.EqualValues(t, 40, e.stalled(1, 0, 100))
	require.EqualValues(t, 25, e.stalled(1, 20, 45))
	require.EqualValues(t, 30, e.stalled(3, 0, 100))
	require.Zero(t, e.stalled(3, 40, 100))
}

// A process that did not run reports the stall before anything else.
func TestStalledProcessesKnowIt(t *testing.T) {
	var stalls []int64
	c := newClock(func(from, to int64) { stalls = append(stalls, to-from) })
	<-time.After(2 * shortestStall) // to the process this looks like a stall
	c.look()
	require.Len(t, stalls, 1)
	require.GreaterOrEqual(t, stalls[0], int64(2*shortestStall))
}

// A server that the machine does not run answers nobody.
func TestStoppedServerIsReported(t *testing.T) {
	const stall = 500 * time.Millisecond
	server, err := servers.Start(context.Background(), servers.Postgres(), servers.Options{
		Settings: []string{"-c", "autovacuum=off"}, // private, so that it may be stopped
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	watched, err := openDatabase(server.Kind, server.DSN)
	require.NoError(t, err)

	longest := make(chan time.Duration, 1)
	longest <- 0
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		watchServer(watched.db, func(from, to int64) {
			longest <- max(<-longest, time.Duration(to-from))
		}, stop)
	}()
	t.Cleanup(func() { close(stop); <-ended })
	require.NoError(t, watched.db.Ping())
	require.NoError(t, server.Pause())
	time.Sleep(stall) // the length of the stall, which orders nothing
	require.NoError(t, server.Continue())
	require.Eventually(t, func() bool {
		seen := <-longest
		longest <- seen
		return seen >= stall-10*tick
	}, 10*time.Second, tick)
}
