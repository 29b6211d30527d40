package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/txlock/txlock/internal/servers"
)

// How clients of a pair find the primary.
const (
	pairHAProxy = "haproxy"
	pairHosts   = "hosts" // both are in the connection string
)

// site is a pair and the way to its primary.
type site struct {
	servers *servers.Pair
	proxy   *servers.Server // or nil
	dsn     string          // for clients
}

func startSite(ctx context.Context, kind servers.Kind, way string, synchronous bool) (*site, error) {
	pair, err := servers.StartPair(ctx, kind, synchronous)
	if err != nil {
		return nil, err
	}
	s := &site{servers: pair}
	if way == pairHAProxy {
		if s.proxy, err = servers.StartHAProxy(ctx, pair); err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.dsn = s.proxy.DSN
		return s, nil
	}
	first, err := addressOf(kind, pair.Primary().DSN)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	second, err := addressOf(kind, pair.Standby().DSN)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.dsn = strings.Replace(pair.Primary().DSN, first, first+","+second, 1) + "&target_session_attrs=read-write"
	return s, nil
}

func (s *site) close() (err error) {
	if s.proxy != nil {
		err = s.proxy.Stop()
	}
	return errors.Join(err, s.servers.Stop())
}

// changePlaces makes the standby the primary, and returns when that took writes. Half of the kills
// come when the standby has not answered for a moment, so that commits wait for it.
func (a *adversary) changePlaces(ctx context.Context, kind faultKind) (opened int64, err error) {
	way := servers.Planned
	if kind == switchKilled {
		way = servers.Killed
		if !a.pair.Synchronous || a.random.IntN(2) == 0 {
			silent := a.upTo(50 * time.Millisecond)
			if err := a.pair.Standby().Pause(); err != nil {
				return 0, err
			}
			time.Sleep(silent)
		}
	}
	err = a.pair.End(ctx, way)
	switch {
	case kind != switchKilled:
	case a.pair.Synchronous:
		err = errors.Join(err, a.pair.Standby().Continue())
	default: // what it has received and not read is lost with the process
		err = errors.Join(err, a.pair.Standby().Kill(), a.pair.Standby().Restart(ctx))
	}
	if err != nil {
		return 0, fmt.Errorf("end the primary: %w", err)
	}
	if err := a.pair.Promote(ctx); err != nil {
		return 0, err
	}
	opened = now()
	err = errors.Join(a.pair.Rejoin(ctx), a.data.redirect(a.pair.Primary().DSN))
	return opened, err
}
