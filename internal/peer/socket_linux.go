package peer

import (
	"net"
	"runtime"
	"syscall"
	"weak"
)

// socketOf returns the socket below conn, which may be a TLS connection, and a weak pointer to the
// socket's owner. Both are nil if there is none.
func socketOf(conn net.Conn) (pointer any, socket syscall.RawConn) {
	for {
		wrapped, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = wrapped.NetConn()
	}
	var err error
	switch c := conn.(type) {
	case *net.TCPConn:
		pointer = weak.Make(c)
		socket, err = c.SyscallConn()
	case *net.UnixConn:
		pointer = weak.Make(c)
		socket, err = c.SyscallConn()
	}
	if err != nil {
		return nil, nil
	}
	return pointer, socket
}

// whenFreed calls forget with number after the last reference to the connection is gone. There must
// still be one now.
func whenFreed(pointer any, forget func(number uint64), number uint64) (cleanup runtime.Cleanup) {
	switch p := pointer.(type) {
	case weak.Pointer[net.TCPConn]:
		cleanup = runtime.AddCleanup(p.Value(), forget, number)
	case weak.Pointer[net.UnixConn]:
		cleanup = runtime.AddCleanup(p.Value(), forget, number)
	}
	return cleanup
}
