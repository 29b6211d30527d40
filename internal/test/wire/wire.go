// Package wire is a TCP proxy for tests. It counts the round trips between clients and a server,
// and it behaves like a bad network: slow, silent, or one that cuts connections; and like a server
// that ends transactions and keeps their connections.
package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy forwards connections to one server.
type Proxy struct {
	listener net.Listener
	target   string
	forwards sync.WaitGroup
	flow     sync.RWMutex // held for writing while nothing is forwarded
	network  atomic.Pointer[Network]

	mu      sync.Mutex
	bursts  int
	logins  int
	keyless bool
	pairs   map[*pair]struct{}
	closed  bool
}

// Network says how the network between clients and server behaves, in both directions. The zero
// value has no faults.
type Network struct {
	Delay time.Duration // from the arrival of each piece of data until it is forwarded
	Rate  int           // bytes a second; 0 for no limit
	Drop  bool          // nothing arrives, no close either; a new connection is accepted, and gets no answer
	Reset bool          // a connection is reset after Delay as soon as data arrives on it
}

// pair is a client's connection and the proxy's connection to the server for it.
type pair struct {
	client, server net.Conn
	asking         bool // the last bytes went from the client to the server; guarded by Proxy.mu
	directions     int  // how many are still forwarded; guarded by Proxy.mu
	silent         bool // nothing arrives any more; guarded by Proxy.flow

	login     *login     // of which the key is hidden; nil: none is
	intrusion *intrusion // that is due; nil: none; guarded by Proxy.mu
	intruding *intrusion // whose answer is to come; nil: none; guarded by Proxy.mu
}

func (p *pair) close() { _ = errors.Join(p.client.Close(), p.server.Close()) }

// reset closes both connections with an RST.
func (p *pair) reset() {
	for _, conn := range []net.Conn{p.client, p.server} {
		_ = conn.(*net.TCPConn).SetLinger(0)
	}
	p.close()
}

// Listen starts a proxy to the server at address.
func Listen(address string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, target: address, pairs: make(map[*pair]struct{})}
	p.network.Store(&Network{})
	p.forwards.Go(p.accept)
	return p, nil
}

// Addr is the address for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Bursts is the number of round trips on all connections: how often a client began to send after
// the server had sent. A request is one burst, in however many packets.
func (p *Proxy) Bursts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bursts
}

// Logins is how many connections there have been.
func (p *Proxy) Logins() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.logins
}

// Open is the number of open connections. A connection leaves the count only when it is closed and
// its client's kernel knows that.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pairs)
}

// Cut closes all connections, like a failing network, and continues to listen.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pair := range p.pairs {
		pair.close()
	}
}

// Hold stops all data until release is called. Call release before Close.
func (p *Proxy) Hold() (release func()) {
	p.flow.Lock()
	return p.flow.Unlock
}

// Delay changes the network to one whose only fault is the delay.
func (p *Proxy) Delay(d time.Duration) { p.Behave(Network{Delay: d}) }

// Behave changes the network for open and for new connections. When the network no longer drops
// data, all connections are closed, because a stream that has lost bytes cannot continue.
func (p *Proxy) Behave(as Network) {
	if was := p.network.Swap(&as); was.Drop && !as.Drop {
		p.Cut()
	}
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.Cut()
	p.forwards.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		pair := &pair{client: client, server: server, directions: 2}
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			_ = errors.Join(client.Close(), server.Close())
			return
		}
		p.pairs[pair] = struct{}{}
		p.logins++
		if p.keyless {
			pair.login = &login{}
		}
		p.mu.Unlock()
		p.forwards.Go(func() { p.forward(pair, server, client, true) })
		p.forwards.Go(func() { p.forward(pair, client, server, false) })
	}
}

// piece is data under way.
type piece struct {
	data    []byte
	arrived time.Time
}

// underWay is how many pieces may be under way in one direction. More wait in the sender's kernel.
const underWay = 1024

// forward forwards one direction until either end closes, and then closes both. It reads on while
// earlier pieces are under way: each is late by the delay, not by the delays of those before it.
func (p *Proxy) forward(pair *pair, to, from net.Conn, asks bool) {
	pieces, delivered := make(chan piece, underWay), make(chan struct{})
	p.forwards.Go(func() {
		defer close(delivered)
		p.deliver(pair, to, pieces)
	})
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		data := buffer[:n]
		if !asks {
			data = pair.login.withoutKey(data)
		}
		if len(data) > 0 && (asks || !p.swallow(pair, data)) {
			p.count(pair, asks)
			select {
			case pieces <- piece{bytes.Clone(data), time.Now()}:
			case <-delivered: // the other end is gone, and nobody takes more
			}
		}
		if err != nil {
			break
		}
	}
	p.release(pair, from)
	close(pieces)
	<-delivered
	p.mu.Lock()
	defer p.mu.Unlock()
	// A connection counts as open until its last reader has stopped.
	if pair.directions--; pair.directions == 0 {
		delete(p.pairs, pair)
	}
}

// deliver forwards pieces in their order. At the end it closes the connection, which also ends its
// reader. While the network drops everything, the other end does not learn of it.
func (p *Proxy) deliver(pair *pair, to net.Conn, pieces <-chan piece) {
	defer func() {
		if !p.network.Load().Drop {
			pair.close()
		}
	}()
	for piece := range pieces {
		if !p.pass(pair, to, piece) {
			return
		}
	}
}

func (p *Proxy) count(pair *pair, asks bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if asks && !pair.asking {
		p.bursts++
	}
	pair.asking = asks
}

// pass forwards data as the network behaves, and reports whether the connection can continue.
func (p *Proxy) pass(pair *pair, to net.Conn, piece piece) bool {
	network, data := p.network.Load(), piece.data
	if network.Drop {
		return true
	}
	if network.Delay > 0 {
		sleep(time.Until(piece.arrived.Add(network.Delay)))
	}
	if network.Reset {
		pair.reset()
		return false
	}
	if to == pair.server {
		if answered, err := p.precede(pair); answered || err != nil {
			return err == nil
		}
	}
	for len(data) > 0 {
		// A limited network sends ten times a second.
		size := len(data)
		if rate := p.network.Load().Rate; rate > 0 {
			size = min(size, max(1, rate/10))
			time.Sleep(time.Duration(size) * time.Second / time.Duration(rate))
		}
		if p.network.Load().Drop {
			return true
		}
		if err := p.write(pair, to, data[:size]); err != nil {
			return false
		}
		data = data[size:]
	}
	return true
}

func (p *Proxy) write(pair *pair, to io.Writer, data []byte) error {
	p.flow.RLock()
	defer p.flow.RUnlock()
	if pair.silent {
		return nil
	}
	_, err := to.Write(data)
	return err
}
