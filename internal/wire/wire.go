// Package wire is a TCP proxy for tests: it counts the round trips that really happen between a
// client and a server, and delays, silences and cuts connections.
package wire

import (
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
	delay    atomic.Int64 // of each burst, in nanoseconds

	mu     sync.Mutex
	bursts int
	pairs  map[*pair]struct{}
	closed bool
}

// pair is a client's connection and its twin to the server.
type pair struct {
	client, server net.Conn
	asking         bool // the last bytes went from the client to the server; guarded by Proxy.mu
	directions     int  // that are forwarded; guarded by Proxy.mu
}

// Listen starts a proxy to the server at address.
func Listen(address string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, target: address, pairs: make(map[*pair]struct{})}
	p.forwards.Go(p.accept)
	return p, nil
}

// Addr is where clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Bursts is how often a client began to send after the server had sent, on all connections: the
// number of round trips. However many packets a request has, it is one burst.
func (p *Proxy) Bursts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bursts
}

// Open is how many connections there are; those that are not counted any more are closed, as their
// clients' kernels know.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pairs)
}

// Cut closes all connections, as a failing network does, and goes on listening.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pair := range p.pairs {
		_ = pair.client.Close()
		_ = pair.server.Close()
	}
}

// Hold delays everything until release is called, which must be before Close.
func (p *Proxy) Hold() (release func()) {
	p.flow.Lock()
	return p.flow.Unlock
}

// Delay holds up each direction by d from now on.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

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
		p.mu.Unlock()
		p.forwards.Go(func() { p.forward(pair, server, client, true) })
		p.forwards.Go(func() { p.forward(pair, client, server, false) })
	}
}

// forward copies one direction until either end closes, and then closes both.
func (p *Proxy) forward(pair *pair, to io.Writer, from io.Reader, asks bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p.mu.Lock()
			if asks && !pair.asking {
				p.bursts++
			}
			pair.asking = asks
			p.mu.Unlock()
			if delay := p.delay.Load(); delay > 0 {
				<-time.After(time.Duration(delay))
			}
			p.flow.RLock()
			_, writeErr := to.Write(buffer[:n])
			p.flow.RUnlock()
			if writeErr != nil {
				err = writeErr
			}
		}
		if err != nil {
			break
		}
	}
	_ = errors.Join(pair.client.Close(), pair.server.Close())
	p.mu.Lock()
	defer p.mu.Unlock()
	// not before: a connection is open until the last one who reads from it has stopped
	if pair.directions--; pair.directions == 0 {
		delete(p.pairs, pair)
	}
}
