package peer

import (
	"net"
	"time"
)

// Conn is a connection that is watched but not used. If the net.Conn is nil, nothing is noticed.
type Conn struct{ Conn net.Conn }

// Watch is [Watch] of the connection.
func (c Conn) Watch(gone func()) (stop func()) { return Watch(c.Conn, gone) }

// Gone is [Gone] of the connection.
func (c Conn) Gone() bool { return Gone(c.Conn) }

// Unread is [Unread] of the connection.
func (c Conn) Unread() bool { return Unread(c.Conn) }

// Silence is [Silence] of the connection.
func (c Conn) Silence() (silence time.Duration, known bool) { return Silence(c.Conn) }

// KeepAlive is [KeepAlive] of the connection.
func (c Conn) KeepAlive(silence time.Duration) (restore func()) { return KeepAlive(c.Conn, silence) }

// Close closes the connection under whoever uses it.
func (c Conn) Close() error {
	if c.Conn == nil {
		return nil
	}
	return c.Conn.Close()
}
