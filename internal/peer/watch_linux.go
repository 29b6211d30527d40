package peer

import (
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// hangUp is what the kernel reports when the peer has closed its side, or the connection has died. EPOLLHUP and EPOLLERR
// are always reported. Data that arrives is not: reading it is somebody else's business, and wakes nobody here.
const hangUp = syscall.EPOLLRDHUP | syscall.EPOLLONESHOT

// linger is how long the watcher stays when nothing is watched, so that a lock that is taken and released in a loop does
// not start one each time.
const linger = 100 * time.Millisecond

// watcher waits for the hang-up of all watched connections of the process, in one goroutine that is parked in the
// runtime's own poller: it needs no thread. It runs while something is watched.
type watcher struct {
	mu      sync.Mutex
	epoll   *os.File // nil when no goroutine runs
	fd      int      // of epoll
	watches map[uint64]func()
	last    uint64
	resting bool // a deadline is set, behind which the goroutine ends unless something is watched
}

var shared = watcher{watches: make(map[uint64]func())}

// Watch calls gone, once and in a goroutine of its own, when the peer of conn closes the connection, or the kernel gives
// it up; at once when that has happened already. It does not call when conn is closed on this side. After stop has
// returned no call begins. stop must be called while conn is not in use by a new owner.
func Watch(conn net.Conn, gone func()) (stop func()) {
	socket := socketOf(conn)
	if socket == nil {
		return func() {}
	}
	id, ok := shared.add(socket, gone)
	if !ok {
		return func() {}
	}
	return func() { shared.remove(socket, id) }
}

func (w *watcher) add(socket syscall.RawConn, gone func()) (id uint64, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.epoll == nil && w.start() != nil {
		return 0, false
	}
	w.last++
	id = w.last
	w.watches[id] = gone
	event := syscall.EpollEvent{Events: hangUp, Fd: int32(id), Pad: int32(id >> 32)} // the 64 bits that come back with it
	err := w.control(socket, syscall.EPOLL_CTL_ADD, &event)
	if err == syscall.EEXIST { // of an owner that did not stop
		err = w.control(socket, syscall.EPOLL_CTL_MOD, &event)
	}
	if err != nil {
		delete(w.watches, id)
	}
	return id, err == nil
}

// remove is why the number of a closed socket is never named: control fails on it, and the kernel has forgotten it by
// itself. The number may be another connection's by then.
func (w *watcher) remove(socket syscall.RawConn, id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.watches, id)
	if w.epoll == nil {
		return
	}
	_ = w.control(socket, syscall.EPOLL_CTL_DEL, &syscall.EpollEvent{})
	if len(w.watches) == 0 && !w.resting {
		w.resting = true
		_ = w.epoll.SetReadDeadline(time.Now().Add(linger))
	}
}

func (w *watcher) control(socket syscall.RawConn, operation int, event *syscall.EpollEvent) (err error) {
	closed := socket.Control(func(fd uintptr) { err = syscall.EpollCtl(w.fd, operation, int(fd), event) })
	if closed != nil {
		return closed
	}
	return err
}

// start is called with mu held.
func (w *watcher) start() error {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // so that os hands it to the runtime's poller
		_ = syscall.Close(fd)
		return err
	}
	w.epoll, w.fd, w.resting = os.NewFile(uintptr(fd), "epoll"), fd, false
	go w.run(w.epoll)
	return nil
}

func (w *watcher) run(epoll *os.File) {
	poller, err := epoll.SyscallConn()
	if err != nil {
		return
	}
	var events [64]syscall.EpollEvent
	for {
		n := 0
		err := poller.Read(func(fd uintptr) bool {
			n, _ = syscall.EpollWait(int(fd), events[:], 0)
			return n > 0
		})
		if err != nil && w.rest() {
			return
		}
		for _, event := range events[:max(n, 0)] {
			w.call(uint64(uint32(event.Fd)) | uint64(uint32(event.Pad))<<32)
		}
	}
}

func (w *watcher) call(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if gone, ok := w.watches[id]; ok {
		delete(w.watches, id)
		go gone() // it is the caller's code, and must not hold up the others
	}
}

// rest ends the watcher when its time is up and nothing is watched. A watch that comes later starts another.
func (w *watcher) rest() (done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resting = false
	if len(w.watches) == 0 {
		_ = w.epoll.Close()
		w.epoll = nil
		return true
	}
	_ = w.epoll.SetReadDeadline(time.Time{})
	return false
}
