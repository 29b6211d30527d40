package main

import (
	"errors"

	"github.com/txlock/txlock/internal/wire"
)

// network is a proxy for each worker, between it and the server.
type network []*wire.Proxy

func openNetwork(workers int, server string) (n network, err error) {
	for range workers {
		proxy, err := wire.Listen(server)
		if err != nil {
			return nil, errors.Join(err, n.close())
		}
		n = append(n, proxy)
	}
	return n, nil
}

func (n network) close() (err error) {
	for _, proxy := range n {
		err = errors.Join(err, proxy.Close())
	}
	return err
}
