package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"
)

// StartPair starts a PostgreSQL server and a hot standby that streams from it. If synchronous, a
// commit on the primary returns after the standby has received it. Both are private instances, even
// if an address is given.
func StartPair(ctx context.Context, kind Kind, synchronous bool) (primary, standby *Server, err error) {
	if !kind.postgres() {
		return nil, nil, fmt.Errorf("a pair of %v is not supported", kind)
	}
	found, err := privatePrograms(ctx, kind)
	if err != nil {
		return nil, nil, err
	}
	if primary, err = found.start(ctx, kind, Options{}); err != nil {
		return nil, nil, err
	}
	if standby, err = found.startStandby(ctx, primary); err == nil {
		err = replicate(ctx, primary, synchronous)
	}
	if err != nil {
		err = errors.Join(err, primary.Stop())
		if standby != nil {
			err = errors.Join(err, standby.Stop())
		}
		return nil, nil, err
	}
	return primary, standby, nil
}

func (p programs) startStandby(ctx context.Context, primary *Server) (*Server, error) {
	return startPrivate(ctx, func(folder string, port int) plan {
		standby := p.plan(folder, port, primary.Kind, Options{})
		standby.name += " standby"
		// The slot makes the primary keep what the standby misses while it is down.
		standby.setup = append(slices.Clone(p.backup), "-d", primary.DSN, "-D", dataIn(folder), "--write-recovery-conf",
			"--create-slot", "--slot=standby", "--checkpoint=fast", "--no-sync")
		standby.first = nil
		return standby
	})
}

// replicate waits until the standby streams from the primary. Only then does it make commits
// synchronous. So the standby has a copy of the earlier configuration, and does not wait for a
// standby of its own when it is promoted.
func replicate(ctx context.Context, primary *Server, synchronous bool) error {
	db, err := sql.Open(primary.Kind.driver(), primary.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	if !synchronous {
		return until(ctx, db, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming')")
	}
	for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return until(ctx, db, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = "+
		"'sync')")
}

// Promote makes a standby a primary, and returns when the server takes writes.
func (s *Server) Promote(ctx context.Context) error {
	if _, err := s.private(); err != nil {
		return err
	}
	db, err := sql.Open(s.Kind.driver(), s.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "SELECT pg_promote()"); err != nil {
		return fmt.Errorf("promote %s: %w", s.Name, err)
	}
	return until(ctx, db, "SELECT NOT pg_is_in_recovery()")
}

// until waits until a query returns true.
func until(ctx context.Context, db *sql.DB, query string) error {
	ctx, cancel := context.WithTimeout(ctx, startUp)
	defer cancel()
	return poll(ctx, 10*time.Millisecond, func() error {
		var yes bool
		if err := db.QueryRowContext(ctx, query).Scan(&yes); err != nil || yes {
			return err
		}
		return fmt.Errorf("%s: no", query)
	})
}
