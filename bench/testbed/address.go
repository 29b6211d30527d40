package testbed

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
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

// Connections returns the number of a server's connections, as the kernel counts them.
func (t *Testbed) Connections(server contest.Server) (int, error) {
	var table string
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return 0, err
		}
		table += string(text)
	}
	host, err := hostOf(server, t.Address(server))
	if err != nil {
		return 0, err
	}
	_, port, err := net.SplitHostPort(host)
	if err != nil {
		return 0, err
	}
	return established(table, port), nil
}

// established counts the lines of such a table with this local port and the state ESTABLISHED,
// which are the server's ends.
func established(table, port string) (total int) {
	var number int
	_, _ = fmt.Sscan(port, &number)
	local := fmt.Sprintf(":%04X", number)
	for _, line := range strings.Split(table, "\n") {
		if fields := strings.Fields(line); len(fields) > 3 && strings.HasSuffix(fields[1], local) && fields[3] == "01" {
			total++
		}
	}
	return total
}
