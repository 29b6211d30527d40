package main

import (
	"errors"

	"github.com/txlock/txlock/internal/test/wire"
)

// network is a proxy for each worker, between it and the server.
type network []*wire.Proxy

// open adds a proxy to a server.
func (n *network) open(server string) error {
	proxy, err := wire.Listen(server)
	if err == nil {
		*n = append(*n, proxy)
	}
	return err
}

func (n network) close() (err error) {
	for _, proxy := range n {
		err = errors.Join(err, proxy.Close())
	}
	return err
}
