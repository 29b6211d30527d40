package doctor

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
)

// greeting is the first packet that a client receives. It holds the version and the number of the
// connection (MySQL internals, "Protocol::HandshakeV10").
type greeting struct {
	mu   sync.Mutex
	text []byte
}

// dial connects as the driver does, and records the greeting.
func (g *greeting) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &greeted{Conn: conn, greeting: g}, nil
}

type greeted struct {
	net.Conn
	greeting *greeting
}

// Read implements io.Reader.
func (c *greeted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.greeting.mu.Lock()
	defer c.greeting.mu.Unlock()
	const enough = 256 // bytes, for the fields that are read
	if have := len(c.greeting.text); have < enough {
		c.greeting.text = append(c.greeting.text, p[:min(n, enough-have)]...)
	}
	return n, err
}

// connection returns the connection's number in the greeting, and the version of the greeter.
func (g *greeting) connection() (number uint32, version string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	const header, protocol = 4, 10
	if len(g.text) < header+1 || g.text[header] != protocol {
		return 0, "", fmt.Errorf("a greeting of another protocol: % x", g.text)
	}
	rest := g.text[header+1:]
	end := bytes.IndexByte(rest, 0)
	if end < 0 || len(rest) < end+5 {
		return 0, "", fmt.Errorf("a greeting that is too short: % x", g.text)
	}
	return binary.LittleEndian.Uint32(rest[end+1:]), string(rest[:end]), nil
}

// lookAtProxy compares the connection's number in the greeting with the number of the session that
// answers. A proxy that speaks the protocol numbers its clients itself. A proxy that only forwards
// bytes is not found, and does no harm. The sum keeps a proxy from answering the query instead of
// the server.
func (m *mysqlServer) lookAtProxy(ctx context.Context) ([]Finding, error) {
	var answering uint64
	if err := m.conn.QueryRowContext(ctx, "SELECT CONNECTION_ID() + 0").Scan(&answering); err != nil {
		return nil, err
	}
	greeted, version, err := m.greeting.connection()
	if err != nil {
		return nil, err
	}
	if greeted == uint32(answering) {
		return one(Finding{Severity: OK, Found: "none: the server itself answers"}), nil
	}
	return one(Finding{
		Severity: Warning,
		Found: fmt.Sprintf("a proxy is in between: it greets as %q and calls connection %d what is %d on the server",
			version, greeted, answering),
		Why: "txlock is not tested through ProxySQL, MaxScale or the like: they may send statements of one session " +
			"to several servers, and the KILL QUERY that " +
			"ends a cancelled wait to the wrong one",
		Fix: advice("connect to the primary server itself"),
	}), nil
}
