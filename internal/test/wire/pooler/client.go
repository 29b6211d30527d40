package pooler

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// session is one of the server's.
type session struct {
	*pgconn.PgConn
	name       string          // application_name
	statements map[string]bool // that the server has prepared
}

// rename has the server show which client the session serves.
func (s *session) rename(name string) error {
	if s.name == name {
		return nil
	}
	s.name = name
	_, err := s.Exec(context.Background(), "SET application_name = '"+name+"'").ReadAll()
	return err
}

// reported are what the server tells each client at its login, as far as client libraries ask for
// it.
var reported = []string{
	"server_version", "server_encoding", "client_encoding", "standard_conforming_strings", "integer_datetimes",
	"DateStyle", "TimeZone", "default_transaction_read_only", "in_hot_standby",
}

// statement is one that a client has prepared. In the server's sessions it has a name that no other
// has had, whichever of them have been told to forget it.
type statement struct{ name, text string }

// client is a connection to the pooler.
type client struct {
	*pgproto3.Backend
	pooler *Pooler
	conn   net.Conn
	number uint32
	name   string               // application_name
	parsed map[string]statement // by the names that it has given
	made   int                  // how many

	mu       sync.Mutex
	session  *session // nil: no transaction is open
	awaited  int      // how often the server has to say that it is ready
	parses   []parse  // that the server has not answered
	answered chan struct{}
}

// parse is a Parse message on its way. Own says that the client has not sent it.
type parse struct {
	name string
	own  bool
}

func (c *client) serve() error {
	for {
		message, err := c.ReceiveStartupMessage()
		if err != nil {
			return err
		}
		switch m := message.(type) {
		case *pgproto3.CancelRequest:
			c.pooler.cancel(m.ProcessID)
			return nil
		case *pgproto3.StartupMessage:
			c.name = m.Parameters["application_name"]
			return c.talk()
		}
		if _, err := c.conn.Write([]byte{'N'}); err != nil { // no TLS
			return err
		}
	}
}

func (c *client) talk() error {
	var leave func()
	c.number, leave = c.pooler.enter(c)
	defer leave()
	s := <-c.pooler.free
	c.Send(&pgproto3.AuthenticationOk{})
	for _, name := range reported {
		c.Send(&pgproto3.ParameterStatus{Name: name, Value: s.ParameterStatus(name)})
	}
	c.pooler.free <- s
	if !c.pooler.keyless {
		c.Send(&pgproto3.BackendKeyData{ProcessID: c.number, SecretKey: []byte{0, 0, 0, 0}})
	}
	c.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	err := c.Flush()
	for err == nil {
		var message pgproto3.FrontendMessage
		if message, err = c.Receive(); err == nil {
			err = c.pass(message)
		}
	}
	c.gone()
	return err
}

// pass sends a message on to the server, in a session that stays this client's until its
// transaction has ended.
func (c *client) pass(message pgproto3.FrontendMessage) error {
	if _, ends := message.(*pgproto3.Terminate); ends {
		return net.ErrClosed
	}
	c.mu.Lock()
	if c.session == nil {
		c.mu.Unlock()
		s := <-c.pooler.free
		if err := s.rename(c.name); err != nil {
			c.pooler.free <- s
			return err
		}
		c.mu.Lock()
		c.session, c.answered = s, make(chan struct{})
		c.pooler.serving.Go(func() { c.answer(s, c.answered) })
	}
	defer c.mu.Unlock()
	s, flush := c.session, false
	switch m := message.(type) {
	case *pgproto3.Query, *pgproto3.Sync, *pgproto3.FunctionCall:
		c.awaited++
		flush = true
	case *pgproto3.Flush, *pgproto3.CopyData, *pgproto3.CopyDone, *pgproto3.CopyFail:
		flush = true
	case *pgproto3.Parse:
		if m.Name != "" {
			c.made++
			c.parsed[m.Name] = statement{fmt.Sprintf("%d_%d", c.number, c.made), m.Query}
			m.Name = c.parsed[m.Name].name
		}
		c.parses = append(c.parses, parse{m.Name, false})
	case *pgproto3.Bind:
		m.PreparedStatement = c.prepare(s, m.PreparedStatement)
	case *pgproto3.Describe:
		if m.ObjectType == 'S' {
			m.Name = c.prepare(s, m.Name)
		}
	case *pgproto3.Close:
		if m.ObjectType == 'S' {
			own := c.parsed[m.Name].name
			delete(c.parsed, m.Name)
			delete(s.statements, own)
			m.Name = own
		}
	}
	s.Frontend().Send(message)
	if flush {
		return s.Frontend().Flush()
	}
	return nil
}

// prepare prepares a statement of the client's in a session that does not have it yet.
func (c *client) prepare(s *session, name string) string {
	own, known := c.parsed[name]
	if !known {
		return name
	}
	if !s.statements[own.name] && !slices.Contains(c.parses, parse{own.name, false}) &&
		!slices.Contains(c.parses, parse{own.name, true}) {
		c.parses = append(c.parses, parse{own.name, true})
		s.Frontend().Send(&pgproto3.Parse{Name: own.name, Query: own.text})
	}
	return own.name
}

// answer passes the server's answers on until the session is free again, or broken.
func (c *client) answer(s *session, answered chan struct{}) {
	defer close(answered)
	for {
		message, err := s.Frontend().Receive()
		if err != nil {
			c.mu.Lock()
			c.session = nil
			c.mu.Unlock()
			_ = c.conn.Close()
			if s, err = c.pooler.connect(); err == nil {
				c.pooler.free <- s
			}
			return
		}
		if c.passBack(s, message) {
			return
		}
	}
}

// passBack gives the session back when its transaction has ended and nothing else is under way.
func (c *client) passBack(s *session, message pgproto3.BackendMessage) (free bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := false
	switch m := message.(type) {
	case *pgproto3.ParseComplete:
		own = c.parses[0].own
		if name := c.parses[0].name; name != "" {
			s.statements[name] = true
		}
		c.parses = c.parses[1:]
	case *pgproto3.ReadyForQuery:
		c.parses = nil
		c.awaited--
		free = c.awaited == 0 && m.TxStatus == 'I'
	}
	if !own {
		c.Send(message)
		_ = c.Flush() // who reads from the client sees that it is gone
	}
	if free {
		c.session = nil
		c.pooler.free <- s
	}
	return free
}

// gone is called when the client is. A statement that still runs is cut off with its session, and
// what the client has left open is rolled back.
func (c *client) gone() {
	c.mu.Lock()
	s, answered, busy := c.session, c.answered, c.awaited > 0
	if s == nil {
		c.mu.Unlock()
		return
	}
	if busy {
		_ = s.Conn().Close()
	} else {
		c.awaited++
		s.Frontend().SendQuery(&pgproto3.Query{String: "ROLLBACK"})
		_ = s.Frontend().Flush()
	}
	c.mu.Unlock()
	<-answered
}
