// Package peer tells whether the other end of a network connection is still there, without using the connection: others
// read and write on it meanwhile.
//
// On Linux it asks the kernel. Elsewhere nothing is noticed: Watch never calls, Gone is always false.
package peer

import (
	"net"
	"syscall"
)

// socketOf is the operating system's socket below conn, which may be TLS; nil when there is none.
func socketOf(conn net.Conn) syscall.RawConn {
	for {
		if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok {
			conn = wrapped.NetConn()
			continue
		}
		socket, ok := conn.(syscall.Conn)
		if !ok {
			return nil
		}
		raw, err := socket.SyscallConn()
		if err != nil {
			return nil
		}
		return raw
	}
}
