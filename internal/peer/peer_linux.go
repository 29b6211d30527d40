//go:build !386

package peer

import (
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// control calls do with the number of the socket below c, which may be a TLS connection. It is an
// error when c is closed on this side. Where there is no socket, do is not called.
func (c Conn) control(do func(fd int)) error {
	conn := c.Conn
	for {
		wrapped, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = wrapped.NetConn()
	}
	below, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	socket, err := below.SyscallConn()
	if err == nil {
		err = socket.Control(func(fd uintptr) { do(int(fd)) })
	}
	return err
}

// tcpEstablished is TCP_ESTABLISHED of the kernel. After the peer's FIN the state differs, whatever
// is left to read. Unread bytes alone prove nothing: a server may send notices at any time.
const tcpEstablished = 1

// Sees tells whether Look notices anything on this system.
const Sees = true

// Look tells whether the connection is closed, or the kernel has given it up, and for how long the
// peer's kernel has not been heard of: 0 if c is not a TCP connection.
func (c Conn) Look() (gone bool, silence time.Duration) {
	err := c.control(func(fd int) {
		var info syscall.TCPInfo // package syscall has the structure, but not the call
		size := uint32(unsafe.Sizeof(info))
		if _, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, uintptr(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0); errno != 0 {
			// What has no bytes is not sent on a Unix socket, and fails when the peer is gone.
			_, err := syscall.SendmsgN(fd, nil, nil, nil, syscall.MSG_NOSIGNAL|syscall.MSG_DONTWAIT)
			gone = err == syscall.EPIPE
			return
		}
		gone = info.State != tcpEstablished
		// TCP keep-alive counts from these times too.
		silence = time.Duration(min(info.Last_ack_recv, info.Last_data_recv)) * time.Millisecond
	})
	return gone || err != nil, silence
}

// Unread tells whether bytes have come that nobody has read. Where nothing was asked, they may be
// the server's last words: it may let go of what the session held before it closes the connection.
func (c Conn) Unread() bool {
	unread := 0
	_ = c.control(func(fd int) {
		unread, _, _ = syscall.Recvfrom(fd, make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return unread > 0
}

// tcpUserTimeout is TCP_USER_TIMEOUT of tcp(7), which package syscall lacks: the milliseconds
// without an acknowledgement, of data or of a keep-alive probe, after which the kernel gives up.
const tcpUserTimeout = 18

// KeepAlive makes the kernel give up c when the peer's kernel has not answered for about silence,
// by TCP keep-alive, which the programs on both sides do not notice. The kernel's timers take whole
// seconds, so a silence below 3 s is not exact. restore sets what was set before.
func (c Conn) KeepAlive(silence time.Duration) (restore func()) {
	every := max(int((silence / 6).Round(time.Second).Seconds()), 1)
	giveUp := max(silence-time.Duration(every)*time.Second, time.Second)
	options := [...]struct{ level, name, value int }{
		{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
		{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, every},
		{syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, every},
		{syscall.IPPROTO_TCP, tcpUserTimeout, int(giveUp.Milliseconds())},
	}
	set := 0 // of these have the former value now
	_ = c.control(func(fd int) {
		for i, o := range options {
			former, err := syscall.GetsockoptInt(fd, o.level, o.name)
			if err != nil || syscall.SetsockoptInt(fd, o.level, o.name, o.value) != nil {
				return // not a TCP connection: the peer is on this machine
			}
			options[i].value = former
			set++
		}
	})
	return func() {
		_ = c.control(func(fd int) {
			for _, o := range options[:set] {
				_ = syscall.SetsockoptInt(fd, o.level, o.name, o.value)
			}
		})
	}
}

// watcher waits for the hang-up of all watched connections, in one goroutine, which is parked in
// the runtime's own poller and needs no thread.
type watcher struct {
	mu    sync.Mutex
	epoll *os.File // nil while no goroutine runs
	fd    int      // of epoll
	// watched is what to call, by numbers that are never used again: an event that comes late is
	// taken for nobody else's.
	watched map[uint64]func()
	last    uint64
}

var shared = watcher{watched: map[uint64]func(){}}

// Watch calls gone once, in a goroutine of its own, when the peer closes c, or the kernel gives it
// up, or has before; not when c is closed on this side. The call may begin just after stop has
// returned. A connection has one watch at a time: a new one ends the old.
func (c Conn) Watch(gone func()) (stop func()) {
	w := &shared
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.epoll == nil {
		fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
		if err == nil {
			err = syscall.SetNonblock(fd, true) // so that package os uses the runtime's poller
		}
		if err != nil {
			return func() {}
		}
		w.epoll, w.fd = os.NewFile(uintptr(fd), "epoll"), fd
		go w.run(w.epoll)
	}
	w.last++
	number := w.last
	// EPOLLRDHUP: the peer has closed its side. EPOLLHUP and EPOLLERR are always reported, arriving
	// data is not. Fd and Pad together are the 64 bits that come back with an event.
	event := syscall.EpollEvent{
		Events: syscall.EPOLLRDHUP | syscall.EPOLLONESHOT, Fd: int32(number), Pad: int32(number >> 32),
	}
	_ = c.control(func(fd int) { // the kernel still knows one of a pool that was watched before
		err := syscall.EpollCtl(w.fd, syscall.EPOLL_CTL_MOD, fd, &event)
		if err == syscall.ENOENT {
			err = syscall.EpollCtl(w.fd, syscall.EPOLL_CTL_ADD, fd, &event)
		}
		if err == nil {
			w.watched[number] = gone
		}
	})
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.watched, number)
		if len(w.watched) == 0 && w.epoll != nil { // a later watch begins anew
			_ = w.epoll.Close()
			w.epoll = nil
		}
	}
}

// run ends when epoll is closed.
func (w *watcher) run(epoll *os.File) {
	poller, err := epoll.SyscallConn()
	for err == nil {
		var events [64]syscall.EpollEvent
		n := 0
		err = poller.Read(func(fd uintptr) bool {
			n, _ = syscall.EpollWait(int(fd), events[:], 0)
			return n > 0
		})
		w.mu.Lock()
		for _, event := range events[:max(n, 0)] {
			if gone := w.watched[uint64(uint32(event.Fd))|uint64(uint32(event.Pad))<<32]; gone != nil {
				go gone() // in a goroutine, so that the caller's code does not delay the others
			}
		}
		w.mu.Unlock()
	}
}
