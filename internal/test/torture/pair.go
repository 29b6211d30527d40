package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/txlock/txlock/internal/test/servers"
)

// How clients of a pair find the primary.
const (
	pairHAProxy = "haproxy"
	pairHosts   = "hosts" // both are in the connection string
	pairGroup   = "group" // a replication group, by HAProxy
	pairPatroni = "patroni"
	pairGalera  = "galera" // each worker has a node

	pairPatroniHosts = "patroni-hosts" // all three are in the connection string
)

// byHosts says whether a connection string with all servers leads to the primary, and no proxy.
func byHosts(way string) bool { return way == pairHosts || way == pairPatroniHosts }

// isCluster says whether the servers are three that look after themselves.
func isCluster(way string) bool {
	return way == pairGroup || way == pairPatroni || way == pairPatroniHosts || way == pairGalera
}

// site is a pair, or a cluster of three, and the way to its primary.
type site struct {
	servers *servers.Fleet
	proxy   *servers.Server // or nil
	dsns    []string        // for clients, in turns
}

func startSite(ctx context.Context, kind servers.Kind, way string, synchronous bool) (*site, error) {
	fleet, err := startFleet(ctx, kind, way, synchronous)
	if err != nil {
		return nil, err
	}
	switch {
	case way == pairGalera:
		s := &site{servers: fleet}
		for _, node := range fleet.Servers() {
			s.dsns = append(s.dsns, node.DSN)
		}
		return s, nil
	case isCluster(way) && !byHosts(way):
		return behindProxy(ctx, fleet, patientCheck)
	case !byHosts(way):
		return behindProxy(ctx, fleet)
	}
	s := &site{servers: fleet}
	var hosts []string
	for _, server := range fleet.Servers() {
		hosts = append(hosts, server.Address())
	}
	// A host that is frozen accepts connections, and is silent.
	s.dsns = []string{strings.Replace(fleet.Servers()[0].DSN, hosts[0], strings.Join(hosts, ","), 1) +
		"&target_session_attrs=read-write&connect_timeout=5"}
	return s, nil
}

func startFleet(ctx context.Context, kind servers.Kind, way string, synchronous bool) (*servers.Fleet, error) {
	switch way {
	case pairGroup:
		return servers.StartGroup(ctx)
	case pairPatroni, pairPatroniHosts:
		return servers.StartPatroni(ctx, kind)
	case pairGalera:
		return servers.StartGalera(ctx, kind)
	}
	return servers.StartPair(ctx, kind, synchronous)
}

// patientCheck is for clusters: with three servers on a machine, one check in many is late.
const patientCheck = "default-server inter 100ms fall 5 rise 1 on-marked-down shutdown-sessions"

func behindProxy(ctx context.Context, fleet *servers.Fleet, settings ...string) (s *site, err error) {
	s = &site{servers: fleet}
	if s.proxy, err = servers.StartHAProxy(ctx, fleet, settings...); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.dsns = []string{s.proxy.DSN}
	return s, nil
}

func (s *site) close() (err error) {
	if s.proxy != nil {
		err = s.proxy.Stop()
	}
	return errors.Join(err, s.servers.Stop())
}

// administrator is the way to the primary. What is asked at a node of Galera waits until that has
// caught up with the others.
func administrator(fleet *servers.Fleet) string {
	dsn := fleet.Primary().DSN
	if fleet.Kind == servers.MariaDB && len(fleet.Servers()) == 3 {
		dsn += "?wsrep_sync_wait=15"
	}
	return dsn
}

// changePlaces makes another server the primary, and returns when that took writes.
func (a *adversary) changePlaces(ctx context.Context, kind faultKind) (opened int64, err error) {
	if len(a.fleet.Servers()) == 2 {
		err = a.endOfPair(ctx, a.fleet, kind)
	} else {
		err = a.fleet.End(ctx, kind.wayOf())
	}
	if err != nil {
		return 0, fmt.Errorf("end the primary: %w", err)
	}
	if err := a.fleet.Promote(ctx); err != nil {
		return 0, err
	}
	opened = now()
	err = errors.Join(a.fleet.Rejoin(ctx), a.data.redirect(administrator(a.fleet)))
	return opened, err
}

// endOfPair ends its primary. Half of the kills come when the standby has not answered for a
// moment, so that commits wait for it.
func (a *adversary) endOfPair(ctx context.Context, pair *servers.Fleet, kind faultKind) error {
	if kind == switchKilled && (!pair.Synchronous || a.random.IntN(2) == 0) {
		silent := a.upTo(50 * time.Millisecond)
		if err := pair.Standby().Pause(); err != nil {
			return err
		}
		time.Sleep(silent)
	}
	err := pair.End(ctx, kind.wayOf())
	switch {
	case kind != switchKilled:
	case pair.Synchronous:
		err = errors.Join(err, pair.Standby().Continue())
	default: // what it has received and not read is lost with the process
		err = errors.Join(err, pair.Standby().Kill(), pair.Standby().Restart(ctx))
	}
	return err
}
