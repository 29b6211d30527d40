package servers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

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
