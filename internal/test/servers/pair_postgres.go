package servers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// postgresReplication streams. The former primary comes back by its own data if it was shut down,
// and as a fresh copy if it was killed.
type postgresReplication struct{ programs programs }

// slot makes a primary keep what its standby misses while that is down.
const slot = "standby"

// settings make a standby that finds its primary down look again soon, not after five seconds.
func (postgresReplication) settings(int) []string {
	return []string{"-c", "wal_retrieve_retry_interval=100ms"}
}

func (postgresReplication) leads() string { return "SELECT NOT pg_is_in_recovery()" }

func (postgresReplication) opens(url string) probe { return Postgres18.creates(url) }

func (r postgresReplication) copies(folder string, primary *Server, more ...string) []string {
	return append(append(slices.Clone(r.programs.backup), "-d", primary.DSN, "-D", dataIn(folder),
		"--write-recovery-conf", "--slot="+slot, "--checkpoint=fast", "--no-sync"), more...)
}

func (r postgresReplication) first(ctx context.Context, found programs, primary *Server, settings []string) (
	*Server, error,
) {
	return startPrivate(ctx, inMemory(), func(folder string, port int) plan {
		standby := found.plan(folder, port, primary.Kind, Options{Settings: settings})
		standby.name += " standby"
		standby.setup, standby.first = r.copies(folder, primary, "--create-slot"), nil
		return standby
	})
}

// wait first waits until the standby streams. Only then does it make commits synchronous. So the
// standby has a copy of the earlier configuration, and does not wait for a standby of its own when
// it is promoted.
func (r postgresReplication) wait(ctx context.Context, primary, _ *Server, synchronous bool) error {
	return on(primary, func(a asks) error {
		if !synchronous {
			return a.until(ctx, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming')")
		}
		if err := a.do(ctx, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"); err != nil {
			return err
		}
		return a.until(ctx, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming' AND "+
			"sync_state = 'sync')")
	})
}

// demote shuts the primary down fast: the server ends the sessions, and waits until the standby has
// everything.
func (r postgresReplication) demote(_ context.Context, primary, _ *Server) error {
	return primary.toProcess(func(p *process) error { return p.end(syscall.SIGINT) })
}

// promote does not wait within the statement: what the server replays might cancel that.
func (r postgresReplication) promote(ctx context.Context, standby *Server) error {
	return on(standby, func(a asks) error {
		if err := a.do(ctx, "SELECT pg_promote(false)"); err != nil {
			return err
		}
		return a.until(ctx, r.leads())
	})
}

func (r postgresReplication) rejoin(ctx context.Context, former, primary *Server) error {
	own, err := former.private()
	if err != nil {
		return err
	}
	clean, err := wasShutDown(own.folder)
	if err != nil {
		return err
	}
	err = tell(ctx, primary, "SELECT pg_create_physical_replication_slot('"+slot+"') WHERE NOT EXISTS (SELECT FROM "+
		"pg_replication_slots WHERE slot_name = '"+slot+"')")
	if err != nil {
		return err
	}
	if clean {
		err = follow(own.folder, primary)
	} else {
		err = own.rebuild(ctx, r.copies(own.folder, primary))
	}
	if err != nil {
		return err
	}
	if err := former.Restart(ctx); err != nil {
		return err
	}
	// Its own slot would keep all logs for nobody.
	return tell(ctx, former, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
}

// wasShutDown says whether the server in a folder has ended in order. One that was killed leaves
// its number.
func wasShutDown(folder string) (bool, error) {
	_, err := os.Stat(filepath.Join(dataIn(folder), "postmaster.pid"))
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// follow makes a server that has ended in order a standby of primary.
func follow(folder string, primary *Server) error {
	to, err := url.Parse(primary.DSN)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(dataIn(folder), "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "\nprimary_conninfo = 'host=%s port=%s user=%s sslmode=disable'\n"+
		"primary_slot_name = '%s'\nsynchronous_standby_names = ''\n", to.Hostname(), to.Port(), to.User.Username(),
		slot)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return configure(filepath.Join(dataIn(folder), "standby.signal"), "")
}
