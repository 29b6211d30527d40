package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// network is the way from each worker to the server, a proxy for each.
type network struct {
	server  *toxiproxy.ApiServer
	proxies []*toxiproxy.Proxy
}

func openNetwork(workers int, upstream string) (*network, error) {
	zerolog.SetGlobalLevel(zerolog.Disabled) // some toxics log to the standard error by themselves
	n := &network{server: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())}
	for process := range workers {
		proxy := toxiproxy.NewProxy(n.server, fmt.Sprintf("worker-%d", process), "127.0.0.1:0", upstream)
		if err := n.server.Collection.Add(proxy, true); err != nil {
			_ = n.close()
			return nil, err
		}
		n.proxies = append(n.proxies, proxy)
	}
	return n, nil
}

func (n *network) address(process int) string { return n.proxies[process].Listen }

func (n *network) close() error { return n.server.Collection.Clear() }

// spoil makes the way of a worker bad, in both directions, until mend.
func (n *network) spoil(process int, toxic string, attributes map[string]int64) error {
	for _, direction := range []string{"upstream", "downstream"} {
		text, err := json.Marshal(map[string]any{
			"name": toxic + "-" + direction, "type": toxic, "stream": direction, "attributes": attributes,
		})
		if err != nil {
			return err
		}
		if _, err := n.proxies[process].Toxics.AddToxicJson(strings.NewReader(string(text))); err != nil {
			return fmt.Errorf("toxic %s: %w", text, err)
		}
	}
	return nil
}

func (n *network) mend(ctx context.Context, process int) { n.proxies[process].Toxics.ResetToxics(ctx) }
