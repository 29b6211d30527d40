package measure

import (
	"context"
	"errors"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/testbed"
)

// MeasureNetwork measures again what a free lock costs, and what is sold of one article, with a
// network between all clients and all servers.
func (l *Lab) MeasureNetwork(ctx context.Context) (err error) {
	l.run.Network.Delay = l.Network.Delay
	return l.away(l.Network.Delay, func() (err error) {
		if l.run.Network.Uncontended, err = l.uncontended(ctx, "network", l.Network.Uncontended); err != nil {
			return err
		}
		l.run.Network.HotRows, err = l.hotRows(ctx, "network, hot-rows", l.Network.HotRows)
		return err
	})
}

// away runs do with proxies between all clients and all servers, which delay all data each way.
func (l *Lab) away(delay time.Duration, do func() error) (err error) {
	l.far = make(map[contest.Server]testbed.Proxy)
	defer func() {
		for _, proxy := range l.far {
			err = errors.Join(err, proxy.Close())
		}
		l.far = nil
	}()
	for _, server := range contest.Servers {
		if l.Testbed.Missing(server) != nil {
			continue
		}
		proxy, err := l.Testbed.Proxied(server)
		if err != nil {
			return err
		}
		l.far[server] = proxy
		proxy.Delay(delay)
	}
	return do()
}
