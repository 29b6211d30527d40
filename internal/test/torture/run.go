package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/txlock/txlock/internal/test/servers"
)

// settings are the settings of a run.
type settings struct {
	Kind       servers.Kind
	For        time.Duration
	Seed       int64
	Processes  int
	Goroutines int
	Keys       int
	Lock       string

	Pair         string // how clients find the primary; empty: one server
	Switches     int
	Asynchronous bool

	Former    string // the torture program of another version, for every other worker
	Installer string // the command txlock that installs first; empty: none

	Histories string // the folder for those with violations; empty: the temporary folder
}

const (
	// epochLength is the time between two checks.
	epochLength = 15 * time.Second
	// restPatience is how long operations may take to end after all faults are healed.
	restPatience = 40 * time.Second
	// enough violations end a run. More would not help to find the cause.
	enough = 20
)

// trial is one run on one server.
type trial struct {
	settings
	out     io.Writer
	lease   time.Duration
	server  *servers.Server // the only one
	pair    *site           // instead of server
	data    *database
	network network
	crew    *crew
	clock   *clock
	enemy   *adversary
	tokens  tokens
	result  *result
}

// torture runs the workers on its own server, with faults, and checks what they did.
func torture(ctx context.Context, s settings, out io.Writer) (*result, error) {
	t := &trial{settings: s, out: out, lease: leaseOf(s), tokens: newTokens(), result: newResult(s)}
	fmt.Fprintf(out, "%v, %s: seed %d\n", s.Kind, s.Lock, s.Seed)
	err := quiet()
	if err == nil {
		err = t.open(ctx)
	}
	if err == nil {
		err = t.run(ctx)
	}
	return t.result, errors.Join(err, t.close())
}

func (t *trial) open(ctx context.Context) (err error) {
	dsn, clients, err := t.start(ctx)
	if err != nil {
		return err
	}
	if t.data, err = openDatabase(t.Kind, dsn); err != nil {
		return err
	}
	if t.result.Version, err = t.data.version(ctx); err != nil {
		return err
	}
	if err := t.data.prepare(ctx, t.Keys); err != nil {
		return err
	}
	if err := t.install(ctx); err != nil {
		return err
	}
	dsns, err := t.connect(clients)
	if err != nil {
		return err
	}
	t.crew = newCrew(plan{
		Kind: t.Kind, Lock: t.Lock, Lease: t.lease, Goroutines: t.Goroutines, Keys: t.Keys,
		Seed: t.Seed, Galera: t.Pair == pairGalera,
	}, dsns, &t.settings, t.result.Refusals)
	t.enemy = &adversary{
		random: rand.New(rand.NewPCG(uint64(t.Seed), 0)), kinds: t.faultKinds(), lease: t.lease,
		server: t.server, data: t.data, network: t.network, crew: t.crew,
	}
	if t.pair != nil {
		t.enemy.fleet = t.pair.servers
	}
	return nil
}

// start starts the server or the pair. It returns the address for the administrator, and those that
// the workers have in turns.
func (t *trial) start(ctx context.Context) (dsn string, clients []string, err error) {
	if t.Pair != "" {
		if t.pair, err = startSite(ctx, t.Kind, t.Pair, !t.Asynchronous); err != nil {
			return "", nil, err
		}
		return administrator(t.pair.servers), t.pair.dsns, nil
	}
	// Acknowledged changes must outlive a kill of the server, so it has to flush.
	if t.server, err = servers.Start(ctx, t.Kind, servers.Options{Durable: true}); err != nil {
		return "", nil, err
	}
	return t.server.DSN, []string{t.server.DSN}, nil
}

// connect gives each worker a proxy and an address.
func (t *trial) connect(clients []string) ([]string, error) {
	dsns := make([]string, t.Processes)
	if byHosts(t.Pair) { // a proxy stands before one server
		for process := range dsns {
			dsns[process] = clients[0] + fmt.Sprintf("&application_name=torture-%d", process)
		}
		return dsns, nil
	}
	for process := range dsns {
		own := clients[process%len(clients)]
		if err := t.network.open((&servers.Server{Kind: t.Kind, DSN: own}).Address()); err != nil {
			return nil, err
		}
		var err error
		if dsns[process], err = workerDSN(t.Kind, own, t.network[process].Addr(), process); err != nil {
			return nil, err
		}
	}
	return dsns, nil
}

// faultKinds returns all kinds for txlock. For a handmade lock it returns only the kind that
// exposes its flaw.
func (t *trial) faultKinds() []faultKind {
	switch t.Lock {
	case lockLeaseRow:
		return []faultKind{stopWorker}
	case lockLookFirst:
		return nil // races come by themselves
	}
	kinds := faultKinds
	switch {
	case isCluster(t.Pair):
		return switchKinds
	case t.pair != nil:
		return []faultKind{switchPlanned, switchKilled}
	}
	if err := errors.Join(t.server.Pause(), t.server.Continue()); err != nil {
		fmt.Fprintln(t.out, "without faults of the server:", err)
		return slices.DeleteFunc(slices.Clone(kinds),
			func(k faultKind) bool { return k == killServer || k == pauseServer })
	}
	return kinds
}

func (t *trial) close() error {
	var failed []error
	if t.crew != nil {
		t.crew.close()
	}
	failed = append(failed, t.network.close())
	if t.data != nil {
		failed = append(failed, t.data.db.Close())
	}
	if t.server != nil {
		failed = append(failed, t.server.Stop())
	}
	if t.pair != nil {
		failed = append(failed, t.pair.close())
	}
	return errors.Join(failed...)
}

// run runs one epoch after another until the time is over.
func (t *trial) run(ctx context.Context) error {
	before, err := t.data.read(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	t.clock = newClock(func(from, to int64) { t.crew.stall(fault{processStalled, everybody, from, to}) })
	stop := make(chan struct{})
	defer close(stop)
	go t.clock.run(stop)
	if t.pair == nil {
		watched, err := openDatabase(t.Kind, t.data.dsn)
		if err != nil {
			return err
		}
		go watchServer(watched.db, func(from, to int64) {
			t.crew.stall(fault{serverStalled, everybody, from, to})
		}, stop)
	}
	if err := t.crew.startAll(ctx); err != nil {
		return err
	}
	for number := 1; ; number++ {
		left := t.For - time.Since(begin)
		if t.pair != nil {
			left = epochLength
		}
		e := &epoch{
			Number: number, Seed: t.Seed, Start: now(), lease: t.lease, seenEarly: !isPostgres(t.Kind),
			workers: t.Processes * t.Goroutines, keys: t.Keys, unfenced: t.Pair == pairPatroniHosts, before: before,
		}
		if err := t.live(ctx, e, min(left, epochLength)); err != nil {
			return err
		}
		if err := t.judge(ctx, e); err != nil {
			return err
		}
		before = e.after
		t.result.Duration = time.Since(begin)
		over := t.result.Duration+t.lease > t.For
		if t.pair != nil {
			over = t.result.switches() >= t.Switches
		}
		if over || len(t.result.Violations) >= enough || ctx.Err() != nil {
			return t.end(ctx)
		}
		if err := t.crew.tell(ctx, "work", "", 0); err != nil {
			return err
		}
	}
}

// live runs one epoch: first some time without faults, because only then the order of waiters
// shows, then one fault after another, then rest.
func (t *trial) live(ctx context.Context, e *epoch, length time.Duration) error {
	active, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	select {
	case <-time.After(length / 5):
	case <-active.Done():
	}
	for len(t.enemy.kinds) > 0 && active.Err() == nil && !t.switched(e) {
		f, err := t.enemy.strike(context.WithoutCancel(ctx)) // a fault is healed even if the run is interrupted
		e.Faults = append(e.Faults, f)
		if f.Kind.switches() {
			e.mending = max(e.mending, now()-f.Healed)
		}
		if err != nil {
			return err
		}
		t.enemy.pause(active)
	}
	<-active.Done()
	// The workers rest even if the run is interrupted, because their work is still checked.
	err := t.crew.tell(context.WithoutCancel(ctx), "rest", "resting", restPatience)
	e.End = now()
	t.clock.look()
	e.Operations, e.Stalls = t.crew.harvest()
	if err != nil {
		t.violate(e, violation{Rule: ruleRest, Text: err.Error(), Operations: unfinished(e.Operations)})
	}
	return err
}

// switched says whether a pair has changed places as often as it should.
func (t *trial) switched(e *epoch) bool {
	return t.pair != nil && t.result.switches()+len(e.Faults) >= t.Switches
}

// end makes the workers close everything, and looks for what they left behind.
func (t *trial) end(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if err := t.crew.tell(ctx, "end", "ended", restPatience); err != nil {
		t.violate(nil, violation{Rule: ruleRest, Text: err.Error()})
	}
	for _, p := range t.crew.workers {
		<-p.exited
	}
	for _, problem := range t.crew.complaints() {
		t.violate(nil, violation{Rule: ruleRest, Text: problem})
	}
	all := func(busy, idle []int64) int { return len(busy) + len(idle) }
	if err := t.data.settle(ctx, 2*t.lease+5*time.Second, all); err != nil {
		t.violate(nil, violation{Rule: ruleRest, Text: err.Error()})
	}
	return nil
}
