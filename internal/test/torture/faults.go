package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/wire"
)

// faultKind is a kind of fault.
type faultKind string

const (
	killWorker   faultKind = "worker killed"
	stopWorker   faultKind = "worker stopped beyond its lease"
	killServer   faultKind = "server killed"
	pauseServer  faultKind = "server paused within the lease"
	endSession   faultKind = "session terminated"
	networkDrop  faultKind = "network silent beyond the lease"
	networkDelay faultKind = "network slow to answer"
	networkThin  faultKind = "network of 1 KB/s"
	networkReset faultKind = "network resets connections"

	switchPlanned faultKind = "planned switchover"
	switchKilled  faultKind = "failover after a kill"

	switchStopped  faultKind = "failover from a stopped primary"
	switchIsolated faultKind = "failover from a primary without its majority"
)

// faultKinds are the faults that txlock must survive.
var faultKinds = []faultKind{
	killWorker, stopWorker, killServer, pauseServer, endSession, networkDrop, networkDelay, networkThin, networkReset,
}

// switchKinds are the faults of a cluster of three.
var switchKinds = []faultKind{switchPlanned, switchKilled, switchStopped, switchIsolated}

// wayOf is how the primary ends at a switchover.
func (k faultKind) wayOf() servers.Way {
	return map[faultKind]servers.Way{
		switchKilled: servers.Killed, switchStopped: servers.Stopped, switchIsolated: servers.Isolated,
	}[k]
}

// tellsFirst says whether a holder must know of its loss before another can have the lock.
func (k faultKind) tellsFirst() bool { return k == networkDrop || k.switches() }

func (k faultKind) switches() bool { return slices.Contains(switchKinds, k) }

// everybody is the victim of a fault that hits more than one worker.
const everybody = -1

// fault is a fault that took place. Its times come from now.
type fault struct {
	Kind   faultKind `json:"kind"`
	Victim int       `json:"victim"`
	Start  int64     `json:"start"`
	Healed int64     `json:"healed"` // when its effect was undone; of a switchover, when the new primary took writes
}

// adversary causes the faults, one at a time.
type adversary struct {
	random  *rand.Rand
	kinds   []faultKind // to choose from
	bag     []faultKind // those left in this round, so that short runs do not repeat a fault
	lease   time.Duration
	server  *servers.Server
	fleet   *servers.Fleet // or nil
	data    *database
	network []*wire.Proxy
	crew    *crew
}

// pause waits until the next fault is due, or until ctx ends.
func (a *adversary) pause(ctx context.Context) {
	select {
	case <-time.After(200*time.Millisecond + a.upTo(600*time.Millisecond)):
	case <-ctx.Done():
	}
}

func (a *adversary) upTo(d time.Duration) time.Duration { return upTo(a.random, d) }

// strike causes the next fault and heals it.
func (a *adversary) strike(ctx context.Context) (fault, error) {
	if len(a.bag) == 0 {
		a.bag = append(a.bag, a.kinds...)
		a.random.Shuffle(len(a.bag), func(i, j int) { a.bag[i], a.bag[j] = a.bag[j], a.bag[i] })
	}
	f := fault{Kind: a.bag[0], Victim: a.random.IntN(len(a.crew.workers)), Start: now()}
	a.bag = a.bag[1:]
	var err error
	switch f.Kind {
	case killWorker:
		err = a.killWorker(ctx, f.Victim)
	case stopWorker:
		err = a.stopWorker(f.Victim)
	case killServer:
		f.Victim = everybody
		err = errors.Join(a.server.Kill(), a.server.Restart(ctx))
	case pauseServer:
		f.Victim = everybody
		err = a.server.Pause()
		time.Sleep(a.lease/10 + a.upTo(a.lease/2))
		err = errors.Join(err, a.server.Continue())
	case endSession:
		f.Victim = everybody
		err = a.endSession(ctx)
	case switchPlanned, switchKilled, switchStopped, switchIsolated:
		f.Victim = everybody
		f.Healed, err = a.changePlaces(ctx, f.Kind)
	default:
		a.spoil(f)
	}
	if f.Healed == 0 {
		f.Healed = now()
	}
	if err != nil {
		return f, fmt.Errorf("%s: %w", f.Kind, err)
	}
	return f, nil
}

func (a *adversary) killWorker(ctx context.Context, victim int) error {
	err := a.crew.kill(victim)
	time.Sleep(a.upTo(300 * time.Millisecond))
	if err := errors.Join(err, a.crew.start(victim, a.crew.workers[victim].start+1)); err != nil {
		return err
	}
	return a.crew.workers[victim].await(ctx, "ready", time.Minute)
}

func (a *adversary) stopWorker(victim int) error {
	err := a.crew.signal(victim, syscall.SIGSTOP)
	time.Sleep(a.lease*3/2 + a.upTo(a.lease))
	return errors.Join(err, a.crew.signal(victim, syscall.SIGCONT))
}

// endSession terminates a session of any worker, preferably one at work.
func (a *adversary) endSession(ctx context.Context) error {
	busy, idle, err := a.data.sessions(ctx)
	if err != nil {
		return err
	}
	if len(busy) == 0 {
		busy = idle
	}
	if len(busy) == 0 {
		return nil
	}
	_ = a.data.terminate(ctx, busy[a.random.IntN(len(busy))]) // it may have ended in the meantime
	return nil
}

// spoil puts a worker on a bad network for a while.
func (a *adversary) spoil(f fault) {
	var bad wire.Network
	duration := 300*time.Millisecond + a.upTo(700*time.Millisecond)
	switch f.Kind {
	case networkDrop:
		bad.Drop = true
		duration = a.lease*3/2 + a.upTo(a.lease)
	case networkDelay:
		bad.Delay = 10*time.Millisecond + a.upTo(60*time.Millisecond)
	case networkThin:
		bad.Rate = 1000
	case networkReset:
		bad.Reset = true
		bad.Delay = a.upTo(20 * time.Millisecond)
	default:
		panic("bug: fault " + string(f.Kind))
	}
	a.network[f.Victim].Behave(bad)
	time.Sleep(duration)
	a.network[f.Victim].Behave(wire.Network{})
}
