package servers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Fleet is servers that copy each other, of which one takes writes: a pair, or a cluster of three
// that finds its primary by itself. Of a Galera all take writes, and the primary is the node that
// the next End hits. All are private instances, even if an address is given.
type Fleet struct {
	Kind        Kind
	Synchronous bool // a commit on the primary returns after another has received it

	flow flow

	mu      sync.Mutex
	servers []*Server // in an order that stays
	primary *Server
	former  *Server // since the last Promote
}

// flow is what differs between fleets. The fleet's mutex is held.
type flow interface {
	// end ends the primary, Planned or Isolated.
	end(ctx context.Context, f *Fleet, way Way) error
	// promote returns the next primary, when it takes writes.
	promote(ctx context.Context, f *Fleet) (*Server, error)
	// rejoin makes the former primary one of the others, and returns when the fleet is whole.
	rejoin(ctx context.Context, f *Fleet) error
	// asks is how a server is asked whether it is the primary.
	asks(server *Server) (question, error)
	// stop stops what there is besides the servers.
	stop() error
}

// Way is how a primary ends.
type Way int

// The ways in which a primary ends.
const (
	// Planned: the primary ends its clients' sessions and takes no more writes. What it has
	// committed reaches the next one before that is promoted. A PostgreSQL and a node of Galera are
	// shut down for it, the others become read only and go on running.
	Planned Way = iota
	// Killed: the primary is killed with all its processes. What it holds and no other ever got is
	// discarded when it comes back.
	Killed
	// Stopped: the processor is taken from the primary until another leads. Not of a pair.
	Stopped
	// Isolated: the primary reaches no other server, or not those who elect, until it has given up.
	// Not of a pair.
	Isolated
)

// String is the way's name, as messages print it.
func (w Way) String() string {
	return [...]string{Planned: "planned", Killed: "killed", Stopped: "stopped", Isolated: "isolated"}[w]
}

// Primary is the server that takes writes.
func (f *Fleet) Primary() *Server {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.primary
}

// Standby is the other server of a pair.
func (f *Fleet) Standby() *Server {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.others()[0]
}

// Servers are all of them, in an order that stays.
func (f *Fleet) Servers() []*Server { return f.servers }

// others are the servers but the primary.
func (f *Fleet) others() []*Server {
	return slices.DeleteFunc(slices.Clone(f.servers), func(s *Server) bool { return s == f.primary })
}

// End ends the primary. Nobody can write until Promote.
func (f *Fleet) End(ctx context.Context, way Way) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch way {
	case Killed:
		return f.primary.Kill()
	case Stopped:
		return f.primary.Pause()
	}
	return f.flow.end(ctx, f, way)
}

// Promote returns when another server is the primary, and takes writes. In a pair they wait for
// nobody yet.
func (f *Fleet) Promote(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	next, err := f.flow.promote(ctx, f)
	if err != nil {
		return fmt.Errorf("another primary than %s: %w", f.primary.DSN, err)
	}
	f.former, f.primary = f.primary, next
	return nil
}

// Rejoin makes the former primary one of the others. It returns when the fleet is as it was.
func (f *Fleet) Rejoin(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = f.former.Continue() // one that was not stopped goes on as it is
	if err := f.flow.rejoin(ctx, f); err != nil {
		return fmt.Errorf("make the former primary %s one of the others: %w", f.former.DSN, err)
	}
	return nil
}

// Stop stops all servers and removes their data.
func (f *Fleet) Stop() (err error) {
	for _, server := range f.servers {
		err = errors.Join(err, server.Stop())
	}
	return errors.Join(err, f.flow.stop())
}

// elected is how long a fleet may take to find another primary.
const elected = 2 * time.Minute

// elect waits until another server than the primary takes writes.
func (f *Fleet) elect(ctx context.Context) (next *Server, err error) {
	ctx, cancel := context.WithTimeout(ctx, elected)
	defer cancel()
	err = poll(ctx, 10*time.Millisecond, func() (failed error) {
		for _, server := range f.others() {
			leads, err := f.leads(ctx, server)
			if leads {
				next = server
				return nil
			}
			failed = errors.Join(failed, err)
		}
		return errors.Join(errors.New("no other server has taken over"), failed)
	})
	return next, err
}

// answered is how long a server may take to say that it is the primary.
const answered = 500 * time.Millisecond

// leads says whether a server takes writes, as the server says itself. One that does not answer
// soon, as it may wait for others, does not.
func (f *Fleet) leads(ctx context.Context, server *Server) (bool, error) {
	q, err := f.flow.asks(server)
	if err != nil {
		return false, err
	}
	defer q.Close()
	ctx, cancel := context.WithTimeout(ctx, answered)
	defer cancel()
	return q.leads(ctx)
}

// pair is the flow of a primary and a standby that copies it.
type pair struct{ by replication }

// replication is what differs between the databases.
type replication interface {
	// settings are for the server with this number, in whichever role it is.
	settings(number int) []string
	// first copies a primary for a new standby, which has the settings.
	first(ctx context.Context, found programs, primary *Server, settings []string) (*Server, error)
	// opens is the probe that makes a new server a primary with a database.
	opens(url string) probe
	// wait sets whether commits wait for the standby, and returns when the standby is ready.
	wait(ctx context.Context, primary, standby *Server, synchronous bool) error
	// demote ends the primary as Planned says.
	demote(ctx context.Context, primary, standby *Server) error
	// promote makes a standby a primary, and returns when it takes writes.
	promote(ctx context.Context, standby *Server) error
	// rejoin makes a former primary a standby.
	rejoin(ctx context.Context, former, primary *Server) error
	// leads is a query whether the server is a primary.
	leads() string
}

// StartPair starts a server and a standby that copies it: by streaming on PostgreSQL, by GTIDs on
// MySQL and MariaDB, there semi-synchronous with AFTER_SYNC and a time limit that never comes.
func StartPair(ctx context.Context, kind Kind, synchronous bool) (*Fleet, error) {
	found, err := privatePrograms(ctx, kind)
	if err != nil {
		return nil, err
	}
	if kind.Postgres() && found.backup == nil {
		return nil, fmt.Errorf("no pg_basebackup for a pair of %v: the package of npm has none", kind)
	}
	by := replicationOf(kind, found)
	f := &Fleet{Kind: kind, Synchronous: synchronous, flow: pair{by}}
	f.primary, err = startPrivate(ctx, inMemory(), func(folder string, port int) plan {
		made := found.plan(folder, port, kind, Options{Settings: by.settings(1)})
		made.first = by.opens(urlOf(kind, port))
		return made
	})
	if err != nil {
		return nil, err
	}
	f.servers = append(f.servers, f.primary)
	standby, err := by.first(ctx, found, f.primary, by.settings(2))
	if standby != nil {
		f.servers = append(f.servers, standby)
	}
	if err == nil {
		err = by.wait(ctx, f.primary, standby, synchronous)
	}
	if err != nil {
		return nil, errors.Join(err, f.Stop())
	}
	slices.SortFunc(f.servers, func(a, b *Server) int { return strings.Compare(a.DSN, b.DSN) })
	return f, nil
}

func replicationOf(kind Kind, found programs) replication {
	switch {
	case kind.Postgres():
		return postgresReplication{found}
	case kind.MariaDB():
		return ofMariaDB
	}
	return ofMySQL
}

func (p pair) end(ctx context.Context, f *Fleet, _ Way) error {
	return p.by.demote(ctx, f.primary, f.others()[0])
}

func (p pair) promote(ctx context.Context, f *Fleet) (*Server, error) {
	return f.others()[0], p.by.promote(ctx, f.others()[0])
}

func (p pair) rejoin(ctx context.Context, f *Fleet) error {
	if err := p.by.rejoin(ctx, f.former, f.primary); err != nil {
		return err
	}
	return p.by.wait(ctx, f.primary, f.former, f.Synchronous)
}

func (p pair) asks(server *Server) (question, error) {
	return byQuery(server.Kind, server.DSN, p.by.leads())
}

func (pair) stop() error { return nil }
