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
	"github.com/txlock/txlock/internal/test/wire"
)

// settings are the settings of a run.
type settings struct {
	Kind      servers.Kind
	For       time.Duration // with Jobs, of each epoch
	Seed      int64
	Handmade  bool   // lookFirst is tortured, not txlock
	Cluster   string // patroni, group or galera; empty: one server
	Switches  int    // of a cluster
	Jobs      int    // are all that is done, by more workers; when none is left, the run ends
	Histories string // the folder for those with violations; empty: the temporary folder
}

const (
	processes  = 3  // of workers
	goroutines = 4  // in each process
	jobbers    = 4  // processes of workers, where there are jobs
	mutexes    = 16 // that is how many keys there are, without those of elections, semaphores and claims

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
	cluster *site           // instead of server
	data    *database
	network []*wire.Proxy // for each worker, between it and its server
	crew    *crew
	clock   *clock
	enemy   *adversary
	tokens  tokens
	result  *result
}

// torture runs the workers on its own server, with faults, and checks what they did.
func torture(ctx context.Context, s settings, out io.Writer) (*result, error) {
	t := &trial{
		settings: s, out: out, lease: leaseOf(s), tokens: newTokens(),
		result: &result{settings: s, Damages: map[faultKind]*damage{}},
	}
	fmt.Fprintf(out, "%v: seed %d\n", s.Kind, s.Seed)
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
	if err := t.data.prepare(ctx, t.Jobs); err != nil {
		return err
	}
	if err := t.ask(ctx, looker.install); err != nil {
		return err
	}
	dsns, err := t.connect(clients)
	if err != nil {
		return err
	}
	t.crew = newCrew(t.plan(), dsns)
	t.enemy = &adversary{
		random: rand.New(rand.NewPCG(uint64(t.Seed), 0)), kinds: t.faultKinds(), lease: t.lease,
		server: t.server, data: t.data, network: t.network, crew: t.crew,
	}
	if t.cluster != nil {
		t.enemy.fleet = t.cluster.servers
	}
	return nil
}

// plan is that of all workers, without what is their own.
func (t *trial) plan() plan {
	return plan{
		Kind: t.Kind, Handmade: t.Handmade, Lease: t.lease, Seed: t.Seed, Galera: t.Cluster == onGalera,
		Jobs: t.Jobs > 0,
	}
}

// ask does what the parent asks of the library, past all proxies.
func (t *trial) ask(ctx context.Context, do func(looker, context.Context) error) error {
	if t.Handmade {
		return nil
	}
	p := t.plan()
	p.DSN = t.data.dsn
	l, err := openLibrary(ctx, p)
	if err != nil {
		return err
	}
	return errors.Join(do(l, ctx), l.close())
}

// start starts the server or the cluster. It returns the address for the administrator, and those
// that the workers have in turns.
func (t *trial) start(ctx context.Context) (dsn string, clients []string, err error) {
	if t.Cluster != "" {
		if t.cluster, err = startSite(ctx, t.Kind); err != nil {
			return "", nil, err
		}
		return administrator(t.cluster.servers), t.cluster.dsns, nil
	}
	// Acknowledged changes must outlive a kill of the server, so it has to flush.
	if t.server, err = servers.Start(ctx, t.Kind, servers.Options{Durable: true}); err != nil {
		return "", nil, err
	}
	return t.server.DSN, []string{t.server.DSN}, nil
}

// connect gives each worker a proxy and an address.
func (t *trial) connect(clients []string) ([]string, error) {
	dsns := make([]string, processes)
	if t.Jobs > 0 {
		dsns = make([]string, jobbers)
	}
	for process := range dsns {
		own := clients[process%len(clients)]
		proxy, err := wire.Listen((&servers.Server{Kind: t.Kind, DSN: own}).Address())
		if err != nil {
			return nil, err
		}
		t.network = append(t.network, proxy)
		if dsns[process], err = workerDSN(t.Kind, own, proxy.Addr(), process); err != nil {
			return nil, err
		}
	}
	return dsns, nil
}

func (t *trial) faultKinds() []faultKind {
	switch {
	case t.Handmade:
		return nil // races come by themselves
	case t.cluster != nil:
		return switchKinds
	}
	if err := errors.Join(t.server.Pause(), t.server.Continue()); err != nil {
		fmt.Fprintln(t.out, "without faults of the server:", err)
		return slices.DeleteFunc(slices.Clone(faultKinds),
			func(k faultKind) bool { return k == killServer || k == pauseServer })
	}
	return faultKinds
}

func (t *trial) close() error {
	var failed []error
	if t.crew != nil {
		t.crew.close()
	}
	for _, proxy := range t.network {
		failed = append(failed, proxy.Close())
	}
	if t.data != nil {
		failed = append(failed, t.data.db.Close())
	}
	if t.server != nil {
		failed = append(failed, t.server.Stop())
	}
	if t.cluster != nil {
		failed = append(failed, t.cluster.close())
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
	if t.cluster == nil {
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
		if t.cluster != nil {
			left = epochLength
		} else if t.Jobs > 0 {
			left = t.For
		}
		e := &epoch{
			Number: number, Seed: t.Seed, Start: now(), lease: t.lease, seenEarly: !isPostgres(t.Kind),
			workers: len(t.network) * goroutines, before: before,
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
		if t.cluster != nil {
			over = t.result.switches() >= t.Switches
		}
		if t.Jobs > 0 {
			left, err := t.data.jobsLeft(context.WithoutCancel(ctx))
			if over = left == 0; err != nil {
				return err
			}
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

// switched says whether a cluster has changed places as often as it should.
func (t *trial) switched(e *epoch) bool {
	return t.cluster != nil && t.result.switches()+len(e.Faults) >= t.Switches
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
