package peer

import (
	"encoding/binary"
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT of tcp(7), which package syscall lacks. It is the time in
// milliseconds without an acknowledgement, of data or of a keep-alive probe, after which the kernel
// gives up the connection.
const tcpUserTimeout = 18

// KeepAlive makes the kernel give up c when the peer's kernel has not answered for about
// silence. It uses TCP keep-alive, which the programs on both sides do not notice. The kernel's
// timers take whole seconds, so a silence below 3 s is not exact. restore resets the connection to
// its former settings.
func (c Conn) KeepAlive(silence time.Duration) (restore func()) {
	_, socket := socketOf(c.Conn)
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
	set := 0 // number of options whose former values are saved
	_ = socket.Control(func(fd uintptr) {
		for i, option := range options {
			former, err := syscall.GetsockoptInt(int(fd), option.level, option.name)
			if err != nil || syscall.SetsockoptInt(int(fd), option.level, option.name, option.value) != nil {
				return // not a TCP connection: the peer is on this machine
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

// Gone reports whether the peer has closed the connection, or the kernel has given it up.
func (c Conn) Gone() bool {
	_, socket := socketOf(c.Conn)
	if socket == nil {
		return false
	}
	gone := false
	err := socket.Control(func(fd uintptr) {
		info, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO)
		if err == nil { // the first byte of struct tcp_info is the state of the connection
			var bytes [4]byte
			binary.NativeEndian.PutUint32(bytes[:], uint32(info))
			gone = bytes[0] != tcpEstablished
			return
		}
		gone = hungUp(int(fd))
	})
	return gone || err != nil
}

// Unread tells whether bytes have come that nobody has read. On a connection on which nothing was
// asked, they are a notice, or the server's last words: it may send these, and let go of all that
// the session held, some time before it closes the connection.
func (c Conn) Unread() bool {
	_, socket := socketOf(c.Conn)
	if socket == nil {
		return false
	}
	unread := 0
	_ = socket.Control(func(fd uintptr) {
		var one [1]byte
		unread, _, _ = syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return unread > 0
}

// tcpEstablished is TCP_ESTABLISHED of the kernel. After the peer's FIN the state differs, whatever
// is left to read. Unread bytes alone prove nothing, because a server may send notices at any time.
const tcpEstablished = 1

// hungUp works for any kind of socket, and takes four system calls instead of one.
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
