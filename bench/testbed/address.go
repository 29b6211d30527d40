package testbed

import (
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/internal/test/wire"
)

// hostOf returns the host and port in a server's address.
func hostOf(server contest.Server, address string) (string, error) {
	switch server {
	case contest.PostgreSQL, contest.Etcd:
		parsed, err := url.Parse(address)
		if err != nil {
			return "", err
		}
		return parsed.Host, nil
	case contest.MySQL, contest.MariaDB:
		config, err := mysql.ParseDSN(address)
		if err != nil {
			return "", err
		}
		return config.Addr, nil
	}
	return address, nil
}

// Proxy stands between the clients and a server.
type Proxy struct {
	*wire.Proxy
	Address string // for clients
}

// Proxied starts a proxy in front of a server.
func (t *Testbed) Proxied(server contest.Server) (p Proxy, err error) {
	address := t.Address(server)
	host, err := hostOf(server, address)
	if err != nil {
		return p, err
	}
	if p.Proxy, err = wire.Listen(host); err != nil {
		return p, err
	}
	p.Address = strings.Replace(address, host, p.Addr(), 1)
	return p, nil
}
