package wire

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Silence drops every packet of the open connections, on both sides, so not even the kernels
// answer. A network that fails silently does the same. The connections do not recover.
func (p *Proxy) Silence() error {
	p.flow.Lock() // what was read and not forwarded yet is lost, too: it would be sent again and again
	defer p.flow.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for pair := range p.pairs {
		pair.silent = true
		for _, conn := range []net.Conn{pair.client, pair.server} {
			if err := silence(conn.(*net.TCPConn)); err != nil {
				return err
			}
		}
	}
	return nil
}

// silence first waits until all data is acknowledged. Otherwise the kernel would send it again, and
// be heard.
func silence(conn *net.TCPConn) error {
	socket, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}} // keeps 0 bytes of each packet
	filter := unix.SockFprog{Len: 1, Filter: &nothing[0]}
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		unacknowledged := 0
		var failed error
		err := socket.Control(func(fd uintptr) {
			if unacknowledged, failed = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); failed == nil && unacknowledged == 0 {
				failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &filter)
			}
		})
		if err != nil || failed != nil || unacknowledged == 0 {
			return errors.Join(err, failed)
		}
		<-ticker.C
	}
}
