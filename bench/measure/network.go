package measure

import (
	"context"
	"errors"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/testbed"
)

// MeasureNetwork measures again what a lock costs, free and contended, and what is sold of one
// article, with a network between all clients and all servers.
func (l *Lab) MeasureNetwork(ctx context.Context) (err error) {
	const name = "network"
	l.far = make(map[contest.Server]*testbed.Proxies)
	defer func() {
		for _, proxies := range l.far {
			err = errors.Join(err, proxies.Close())
		}
		l.far = nil
	}()
	for _, server := range contest.Servers {
		if l.Testbed.Missing(server) != nil {
			continue
		}
		proxies, err := l.Testbed.Proxied(server)
		if err != nil {
			return err
		}
		l.far[server] = proxies
		proxies.Delay(l.Network.Delay)
	}
	l.run.Network.Delay = l.Network.Delay
	if l.run.Network.Uncontended, err = l.cycles(ctx, name+", uncontended", l.Network.Uncontended); err != nil {
		return err
	}
	if l.run.Network.Contended, err = l.contention(ctx, name+", contended", l.Network.Contended); err != nil {
		return err
	}
	l.run.Network.HotRows, err = l.hotRows(ctx, name+", hot-rows", l.Network.HotRows)
	return err
}
