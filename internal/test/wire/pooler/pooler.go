// Package pooler is a connection pooler for PostgreSQL in transaction mode, for tests. It behaves
// like PgCat, Odyssey and PgDog as they ship: a session of the server serves one client after the
// other, it changes hands when no transaction is open, and where a client is gone in the middle of
// one, ROLLBACK is sent and the session goes on to the next client with all its settings.
// (PgBouncer closes such a session.)
package pooler

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Pooler shares sessions of one server among clients.
type Pooler struct {
	listener net.Listener
	dsn      string
	keyless  bool
	free     chan *session
	serving  sync.WaitGroup

	mu      sync.Mutex
	clients map[uint32]*client // by the number that it was told
	last    uint32
	closed  bool
}

// Listen starts a pooler with so many sessions of the server that dsn names. Clients need no
// password, and act as the user of dsn.
func Listen(dsn string, sessions int) (*Pooler, error) { return listen(dsn, sessions, false) }

// ListenKeyless is Listen for a pooler that, like RDS Proxy, tells its clients no key by which they
// could cancel, and takes no cancel request.
func ListenKeyless(dsn string, sessions int) (*Pooler, error) { return listen(dsn, sessions, true) }

func listen(dsn string, sessions int, keyless bool) (*Pooler, error) {
	p := &Pooler{dsn: dsn, keyless: keyless, free: make(chan *session, sessions), clients: map[uint32]*client{}}
	for range sessions {
		s, err := p.connect()
		if err != nil {
			return nil, errors.Join(err, p.closeFree())
		}
		p.free <- s
	}
	var err error
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, errors.Join(err, p.closeFree())
	}
	p.serving.Go(p.accept)
	return p, nil
}

// Addr is the address for clients.
func (p *Pooler) Addr() string { return p.listener.Addr().String() }

// Logins is how many clients have come.
func (p *Pooler) Logins() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.last)
}

// Close ends the pooler and its sessions.
func (p *Pooler) Close() error {
	err := p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for _, c := range p.clients {
		_ = c.conn.Close()
	}
	p.mu.Unlock()
	p.serving.Wait()
	return errors.Join(err, p.closeFree())
}

func (p *Pooler) closeFree() (err error) {
	close(p.free)
	for s := range p.free {
		err = errors.Join(err, s.Close(context.Background()))
	}
	return err
}

func (p *Pooler) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.serving.Go(func() {
			defer conn.Close()
			c := &client{
				pooler: p, conn: conn, Backend: pgproto3.NewBackend(conn, conn), parsed: map[string]statement{},
			}
			_ = c.serve() // a client that is gone is no error
		})
	}
}

func (p *Pooler) connect() (*session, error) {
	conn, err := pgconn.Connect(context.Background(), p.dsn)
	return &session{PgConn: conn, statements: map[string]bool{}}, err
}

// enter gives a client its number, and takes it back when leave is called.
func (p *Pooler) enter(c *client) (number uint32, leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	number = p.last
	p.clients[number] = c
	if p.closed {
		_ = c.conn.Close()
	}
	return number, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.clients, number)
	}
}

// cancel passes a cancel request on to the session that the client has at this moment. Until the
// server has taken it, the session is nobody else's.
func (p *Pooler) cancel(number uint32) {
	p.mu.Lock()
	c := p.clients[number]
	p.mu.Unlock()
	if c == nil || p.keyless {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != nil {
		_ = c.session.CancelRequest(context.Background())
	}
}
