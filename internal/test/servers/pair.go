package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// Pair is a primary and a standby that copies it. They change places by Switch. Both are private
// instances, even if an address is given.
type Pair struct {
	Kind        Kind
	Synchronous bool // a commit on the primary returns after the standby has received it

	flow replication

	mu               sync.Mutex
	primary, standby *Server
}

// Way is how a primary ends.
type Way int

// The ways in which a primary ends.
const (
	// Planned: the primary ends its clients' sessions and takes no more writes. What it has
	// committed reaches the standby before that is promoted. A PostgreSQL is shut down for it, the
	// others become read only and go on running.
	Planned Way = iota
	// Killed: the primary is killed with all its processes. What it holds and the standby never got
	// is discarded when it comes back.
	Killed
	// Stopped: the processor is taken from the primary until another leads. Not of a Pair.
	Stopped
	// Isolated: the primary reaches no other server, or not those who elect, until it has given up.
	// Not of a Pair.
	Isolated
)

// String is the way's name, as messages print it.
func (w Way) String() string {
	return [...]string{Planned: "planned", Killed: "killed", Stopped: "stopped", Isolated: "isolated"}[w]
}

// Fleet is servers of which one takes writes: a Pair, a Group or a Patroni.
type Fleet interface {
	// Primary is the server that takes writes.
	Primary() *Server
	// Servers are all of them, in an order that stays.
	Servers() []*Server
	// End ends the primary. Nobody can write until Promote.
	End(ctx context.Context, way Way) error
	// Promote returns when another server takes writes.
	Promote(ctx context.Context) error
	// Rejoin makes the former primary one of the others.
	Rejoin(ctx context.Context) error
	// Stop stops all servers and removes their data.
	Stop() error

	// asks is how a server is asked whether it is the primary.
	asks(server *Server) (question, error)
}

// successor waits until another server of a fleet than the former primary takes writes.
func successor(ctx context.Context, fleet Fleet, former *Server) (next *Server, err error) {
	ctx, cancel := context.WithTimeout(ctx, elected)
	defer cancel()
	err = poll(ctx, 10*time.Millisecond, func() (failed error) {
		for _, server := range fleet.Servers() {
			if server == former {
				continue
			}
			leads, err := Leads(ctx, fleet, server)
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

// elected is how long a fleet may take to find another primary.
const elected = 2 * time.Minute

// question is whether a server is the primary. To be closed.
type question struct {
	leads func(context.Context) (bool, error)
	io.Closer
}

// byQuery asks by a query on a connection of its own.
func byQuery(kind Kind, dsn, query string) (question, error) {
	db, err := sql.Open(kind.driver(), dsn)
	if err != nil {
		return question{}, err
	}
	db.SetMaxOpenConns(1)
	return question{func(ctx context.Context) (leads bool, err error) {
		err = db.QueryRowContext(ctx, query).Scan(&leads)
		return leads, err
	}, db}, nil
}

// Leads says whether a server of a fleet takes writes, as the server says itself. One that does not
// answer soon, as it may wait for others, does not.
func Leads(ctx context.Context, fleet Fleet, server *Server) (bool, error) {
	q, err := fleet.asks(server)
	if err != nil {
		return false, err
	}
	defer q.Close()
	ctx, cancel := context.WithTimeout(ctx, answered)
	defer cancel()
	return q.leads(ctx)
}

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
func StartPair(ctx context.Context, kind Kind, synchronous bool) (*Pair, error) {
	found, err := privatePrograms(ctx, kind)
	if err != nil {
		return nil, err
	}
	if kind.Postgres() && found.backup == nil {
		return nil, fmt.Errorf("no pg_basebackup for a pair of %v: the package of npm has none", kind)
	}
	p := &Pair{Kind: kind, Synchronous: synchronous, flow: replicationOf(kind, found)}
	if p.primary, err = found.startPrimary(ctx, kind, p.flow); err != nil {
		return nil, err
	}
	if p.standby, err = p.flow.first(ctx, found, p.primary, p.flow.settings(2)); err == nil {
		err = p.flow.wait(ctx, p.primary, p.standby, synchronous)
	}
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func replicationOf(kind Kind, found programs) replication {
	switch {
	case kind.Postgres():
		return &postgresReplication{found}
	case kind.MariaDB():
		return mariadbReplication{}
	}
	return mysqlReplication{}
}

func (p programs) startPrimary(ctx context.Context, kind Kind, flow replication) (*Server, error) {
	return startPrivate(ctx, inMemory(), func(folder string, port int) plan {
		made := p.plan(folder, port, kind, Options{Settings: flow.settings(1)})
		made.first = flow.opens(urlOf(kind, port))
		return made
	})
}

// Primary is the server that takes writes.
func (p *Pair) Primary() *Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.primary
}

// Standby is the server that copies the primary.
func (p *Pair) Standby() *Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.standby
}

// Servers are both, in an order that stays.
func (p *Pair) Servers() []*Server {
	both := []*Server{p.Primary(), p.Standby()}
	slices.SortFunc(both, func(a, b *Server) int { return slices.Compare([]byte(a.DSN), []byte(b.DSN)) })
	return both
}

// Switch makes the standby the primary, and the primary its standby. It returns when the new pair
// is as the old was.
func (p *Pair) Switch(ctx context.Context, way Way) error {
	if err := p.End(ctx, way); err != nil {
		return fmt.Errorf("end the primary (%v): %w", way, err)
	}
	if err := p.Promote(ctx); err != nil {
		return err
	}
	return p.Rejoin(ctx)
}

// End ends the primary. Nobody can write until Promote.
func (p *Pair) End(ctx context.Context, way Way) error {
	if way == Killed {
		return p.Primary().Kill()
	}
	return p.flow.demote(ctx, p.Primary(), p.Standby())
}

// Promote makes the standby the primary, which has no standby until Rejoin. It returns when the
// server takes writes. They wait for nobody yet.
func (p *Pair) Promote(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.flow.promote(ctx, p.standby); err != nil {
		return fmt.Errorf("promote %s: %w", p.standby.Name, err)
	}
	p.primary, p.standby = p.standby, p.primary
	return nil
}

// Rejoin makes the former primary the standby of the new one, and commits wait for it again, if
// the pair is synchronous.
func (p *Pair) Rejoin(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.flow.rejoin(ctx, p.standby, p.primary); err != nil {
		return fmt.Errorf("make the former primary a standby: %w", err)
	}
	return p.flow.wait(ctx, p.primary, p.standby, p.Synchronous)
}

func (p *Pair) asks(server *Server) (question, error) {
	return byQuery(p.Kind, server.DSN, p.flow.leads())
}

// Stop stops both servers and removes their data.
func (p *Pair) Stop() (err error) {
	for _, server := range []*Server{p.Primary(), p.Standby()} {
		if server != nil {
			err = errors.Join(err, server.Stop())
		}
	}
	return err
}

// asks is a connection to a server for a few statements.
type asks struct{ *sql.DB }

// ask connects. On MySQL and MariaDB it does so without a database: a new standby has none yet.
func ask(server *Server) (asks, error) {
	dsn := server.DSN
	if !server.Kind.Postgres() {
		dsn = strings.TrimSuffix(dsn, "txlock")
	}
	db, err := sql.Open(server.Kind.driver(), dsn)
	return asks{db}, err
}

// do runs statements.
func (a asks) do(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		if _, err := a.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// text is the answer to a query.
func (a asks) text(ctx context.Context, query string, arguments ...any) (answer string, err error) {
	if err = a.QueryRowContext(ctx, query, arguments...).Scan(&answer); err != nil {
		err = fmt.Errorf("%s: %w", query, err)
	}
	return answer, err
}

// until waits until a query returns true.
func (a asks) until(ctx context.Context, query string) error {
	ctx, cancel := context.WithTimeout(ctx, startUp)
	defer cancel()
	return poll(ctx, 10*time.Millisecond, func() error {
		var yes bool
		if err := a.QueryRowContext(ctx, query).Scan(&yes); err != nil || yes {
			return err
		}
		return fmt.Errorf("%s: no", query)
	})
}

// on runs do with a connection to a server.
func on(server *Server, do func(asks) error) error {
	a, err := ask(server)
	if err != nil {
		return err
	}
	defer a.Close()
	return do(a)
}
