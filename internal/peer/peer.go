// Package peer tells whether the other end of a network connection is still there. It does not use
// the connection, so others can read and write on it meanwhile.
//
// On Linux it asks the kernel. On other systems, and on 386, it notices nothing.
package peer

import "net"

// Conn is a connection that is watched but not used. If the net.Conn is nil, nothing is noticed.
type Conn struct{ Conn net.Conn }

// Close closes the connection under whoever uses it.
func (c Conn) Close() error {
	if c.Conn == nil {
		return nil
	}
	return c.Conn.Close()
}

// Gone tells whether the connection is dead.
func (c Conn) Gone() bool {
	gone, _ := c.Look()
	return gone
}
