package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/txlock/txlock/internal/test/servers"
)

// The clusters of three servers that look after themselves.
const (
	onPatroni = "patroni"
	onGroup   = "group"
	onGalera  = "galera" // each worker has a node
)

// clusterOn is the cluster of servers of a kind.
func clusterOn(kind servers.Kind) string {
	switch {
	case isPostgres(kind):
		return onPatroni
	case kind == servers.MySQL:
		return onGroup
	}
	return onGalera
}

// site is a cluster, and the way to its primary.
type site struct {
	servers *servers.Fleet
	proxy   *servers.Server // nil: every server takes writes
	dsns    []string        // for clients, in turns
}

func startSite(ctx context.Context, kind servers.Kind) (s *site, err error) {
	s = &site{}
	switch clusterOn(kind) {
	case onPatroni:
		s.servers, err = servers.StartPatroni(ctx, kind)
	case onGroup:
		s.servers, err = servers.StartGroup(ctx)
	case onGalera:
		s.servers, err = servers.StartGalera(ctx, kind)
	}
	if err != nil {
		return nil, err
	}
	if clusterOn(kind) == onGalera {
		for _, node := range s.servers.Servers() {
			s.dsns = append(s.dsns, node.DSN)
		}
		return s, nil
	}
	if s.proxy, err = servers.StartHAProxy(ctx, s.servers, patientCheck); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.dsns = []string{s.proxy.DSN}
	return s, nil
}

// patientCheck is for three servers on one machine, where one check in many is late.
const patientCheck = "default-server inter 100ms fall 5 rise 1 on-marked-down shutdown-sessions"

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
	if fleet.Kind == servers.MariaDB {
		dsn += "?wsrep_sync_wait=15"
	}
	return dsn
}

// changePlaces makes another server the primary, and returns when that took writes.
func (a *adversary) changePlaces(ctx context.Context, kind faultKind) (opened int64, err error) {
	if err := a.fleet.End(ctx, kind.wayOf()); err != nil {
		return 0, fmt.Errorf("end the primary: %w", err)
	}
	if err := a.fleet.Promote(ctx); err != nil {
		return 0, err
	}
	opened = now()
	err = errors.Join(a.fleet.Rejoin(ctx), a.data.redirect(administrator(a.fleet)))
	return opened, err
}
