package peer

import (
	"encoding/binary"
	"net"
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT of tcp(7), which package syscall lacks: after how many
// milliseconds without an acknowledgement, of data or of a keep-alive probe, the kernel gives the
// connection up.
const tcpUserTimeout = 18

// Probe has the kernel give conn up when the peer's kernel has not answered for about silence: it
// asks by TCP keep-alive, which is no traffic for the program on either side. The kernel's timers
// for that take whole seconds, so that less than 3 seconds are not kept exactly. restore gives the
// connection its former settings back.
func Probe(conn net.Conn, silence time.Duration) (restore func()) {
	_, socket := socketOf(conn)
	if socket == nil {
		return func() {}
	}
	every := max(int((silence / 6).Round(time.Second).Seconds()), 1)
	giveUp := max(silence-time.Duration(every)*time.Second, time.Second)
	options := []struct{ level, name, value int }{
		{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
		{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, every},
		{syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, every},
		{syscall.IPPROTO_TCP, tcpUserTimeout, int(giveUp.Milliseconds())},
	}
	set := 0 // how many of options hold the former value
	_ = socket.Control(func(fd uintptr) {
		for i, option := range options {
			former, err := syscall.GetsockoptInt(int(fd), option.level, option.name)
			if err != nil || syscall.SetsockoptInt(int(fd), option.level, option.name, option.value) != nil {
				return // not a TCP connection: its peer is on this machine
			}
			options[i].value = former
			set++
		}
	})
	return func() {
		_ = socket.Control(func(fd uintptr) {
			for _, option := range options[:set] {
				_ = syscall.SetsockoptInt(int(fd), option.level, option.name, option.value)
			}
		})
	}
}

// Gone tells whether the peer of conn has closed the connection, or the kernel has given it up.
func Gone(conn net.Conn) bool {
	_, socket := socketOf(conn)
	if socket == nil {
		return false
	}
	gone := false
	err := socket.Control(func(fd uintptr) {
		info, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO)
		if err == nil { // of struct tcp_info the first byte, the connection's state
			var bytes [4]byte
			binary.NativeEndian.PutUint32(bytes[:], uint32(info))
			gone = bytes[0] != tcpEstablished
			return
		}
		gone = hungUp(int(fd))
	})
	return gone || err != nil
}

// tcpEstablished is TCP_ESTABLISHED of the kernel. After the peer's FIN the state is another,
// whatever is left to read: bytes to read alone say nothing, for a server may send notices at any
// time.
const tcpEstablished = 1

// hungUp asks about any kind of socket, which takes four system calls instead of one.
func hungUp(socket int) bool {
	epoll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return false
	}
	defer syscall.Close(epoll)
	events := [1]syscall.EpollEvent{{Events: hangUp}}
	if syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, socket, &events[0]) != nil {
		return false
	}
	n, err := syscall.EpollWait(epoll, events[:], 0)
	return err == nil && n > 0
}
