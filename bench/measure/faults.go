package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/results"
	"github.com/txlock/txlock/bench/testbed"
)

// faultKey is a key of one contestant's fault. Each has its own, because several contestants share
// their locks, and their faults happen at the same time.
func faultKey(c contest.Contestant, fault string, trial int) string {
	return fmt.Sprintf("%s: %s %d", c.Name, fault, trial)
}

// MeasureFaults breaks something around each lock. Most of that is waiting, so many scenes run at
// once. All their processes are started first. Then the faults happen one after the other, on an
// otherwise idle machine.
func (l *Lab) MeasureFaults(ctx context.Context) error {
	var scenes []*scene
	for trial := range l.Faults.Trials {
		for _, fault := range results.FaultNames {
			for _, c := range l.shuffled(l.in(contest.Faults)) {
				scenes = append(scenes, l.newScene(c, fault, trial))
			}
		}
	}
	done := 0
	for batch := range slices.Chunk(scenes, l.Faults.AtATime) {
		l.Tell("faults", done, len(scenes))
		simultaneously(ctx, batch, (*scene).stage, startsAtATime)
		simultaneously(ctx, batch, (*scene).play, len(batch))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		done += len(batch)
	}
	l.Tell("faults", done, len(scenes))
	l.note(scenes)
	return nil
}

// startsAtATime is the number of processes that start at a time. Starting them takes most of the
// machine's time here.
const startsAtATime = 8

// stagger is the time between two faults, so that each happens on an idle machine.
const stagger = 40 * time.Millisecond

// simultaneously runs a step of all scenes of a batch, atATime at once.
func simultaneously(ctx context.Context, batch []*scene, step func(*scene, context.Context) error, atATime int) {
	var group errgroup.Group
	group.SetLimit(atATime)
	for _, s := range batch {
		group.Go(func() error {
			if s.err == nil {
				s.err = step(s, ctx)
			}
			return nil
		})
		if atATime == len(batch) {
			crew.Wait(ctx, stagger)
		}
	}
	_ = group.Wait() // each scene has its own error
}

// note adds the outcomes to the results.
func (l *Lab) note(scenes []*scene) {
	for _, s := range scenes {
		if s.err != nil {
			l.missing(s.contestant, "faults, "+s.fault, s.err)
			continue
		}
		at := slices.IndexFunc(l.run.Faults, func(f results.Fault) bool {
			return f.Contestant == s.contestant.Name && f.Fault == s.fault
		})
		if at < 0 {
			at = len(l.run.Faults)
			l.run.Faults = append(l.run.Faults, results.Fault{Contestant: s.contestant.Name, Fault: s.fault})
		}
		l.run.Faults[at].Trials = append(l.run.Faults[at].Trials, s.outcome)
	}
}

// MeasureNetwork measures again what a free lock costs, and what is sold of one article, with a
// network between all clients and all servers.
func (l *Lab) MeasureNetwork(ctx context.Context) (err error) {
	l.run.Network.Delay = l.Network.Delay
	return l.away(l.Network.Delay, func() (err error) {
		if l.run.Network.Uncontended, err = l.uncontended(ctx, "network", l.Network.Uncontended); err != nil {
			return err
		}
		l.run.Network.HotRows, err = l.hotRows(ctx, "network, hot-rows", l.Network.HotRows)
		return err
	})
}

// away runs do with proxies between all clients and all servers, which delay all data each way.
func (l *Lab) away(delay time.Duration, do func() error) (err error) {
	l.far = make(map[contest.Server]testbed.Proxy)
	defer func() {
		for _, proxy := range l.far {
			err = errors.Join(err, proxy.Close())
		}
		l.far = nil
	}()
	for _, server := range contest.Servers {
		if l.Testbed.Missing(server) != nil {
			continue
		}
		proxy, err := l.Testbed.Proxied(server)
		if err != nil {
			return err
		}
		l.far[server] = proxy
		proxy.Delay(delay)
	}
	return do()
}
