package testbed

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

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

// Proxies stand between the clients and a server.
type Proxies struct {
	Addresses []string // for clients
	proxies   []*wire.Proxy
}

// Proxied starts proxies in front of a server.
func (t *Testbed) Proxied(server contest.Server) (*Proxies, error) {
	p := &Proxies{}
	for _, address := range t.Addresses(server) {
		host, err := hostOf(server, address)
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		proxy, err := wire.Listen(host)
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.proxies = append(p.proxies, proxy)
		p.Addresses = append(p.Addresses, strings.Replace(address, host, proxy.Addr(), 1))
	}
	return p, nil
}

// RoundTrips returns the number of round trips so far.
func (p *Proxies) RoundTrips() (total int) {
	for _, proxy := range p.proxies {
		total += proxy.Bursts()
	}
	return total
}

// Delay lets all data arrive this much later, in both directions.
func (p *Proxies) Delay(d time.Duration) {
	for _, proxy := range p.proxies {
		proxy.Delay(d)
	}
}

// Hold stops all data until release is called.
func (p *Proxies) Hold() (release func()) {
	var releases []func()
	for _, proxy := range p.proxies {
		releases = append(releases, proxy.Hold())
	}
	return func() {
		for _, release := range releases {
			release()
		}
	}
}

// Close ends the proxies and their connections.
func (p *Proxies) Close() (err error) {
	for _, proxy := range p.proxies {
		err = errors.Join(err, proxy.Close())
	}
	return err
}

// Connections returns the number of a server's connections, as the kernel counts them.
func (t *Testbed) Connections(server contest.Server) (total int, err error) {
	var table string
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} { // Java listens on tcp6 for both
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return 0, err
		}
		table += string(text)
	}
	for _, address := range t.Addresses(server) {
		host, err := hostOf(server, address)
		if err != nil {
			return 0, err
		}
		_, port, err := net.SplitHostPort(host)
		if err != nil {
			return 0, err
		}
		total += established(table, port)
	}
	return total, nil
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
