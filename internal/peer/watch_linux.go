package peer

import (
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// hangUp is the event for a peer that has closed its side, and for a connection that has died.
// EPOLLHUP and EPOLLERR are always reported. Arriving data wakes nobody, because it is not asked
// for.
const hangUp = syscall.EPOLLRDHUP | syscall.EPOLLONESHOT

// linger is how long the watcher stays when nothing is watched. A loop that takes and releases a
// lock therefore does not start a watcher each time.
const linger = 100 * time.Millisecond

// watcher waits for the hang-up of all watched connections of the process, in one goroutine. The
// goroutine is parked in the runtime's own poller, so it needs no thread. It runs while something
// is watched.
//
// A connection stays registered with the kernel when its watch stops, because a connection of a
// pool is watched again soon. The kernel forgets a connection when it is closed, and all of them
// when the watcher ends.
type watcher struct {
	mu         sync.Mutex
	epoll      *os.File // nil while no goroutine runs
	fd         int      // of epoll
	registered map[uint64]*registration
	numbers    map[any]uint64 // of the registrations, by weak pointer to the connection
	last       uint64
	watches    int  // number of watched registrations
	resting    bool // a deadline is set, after which the goroutine ends unless something is watched
}

// registration is a connection that the kernel knows by a number. Numbers are never reused:
// otherwise an event could be taken for an event of a later connection with the same file
// descriptor.
type registration struct {
	conn  any // weak pointer
	freed runtime.Cleanup
	owner int // counts the watches, to tell them apart
	gone  func()
	ended bool // the hang-up has been reported
}

var shared watcher

// Watch calls gone when the peer closes c, or the kernel gives it up. If that has already
// happened, it calls at once. It calls once, in a goroutine of its own. It does not call when c
// is closed on this side. If stop runs at the same time, the call may begin after stop has
// returned. A connection has one watch at a time: a new one ends the old.
func (c Conn) Watch(gone func()) (stop func()) {
	pointer, socket := socketOf(c.Conn)
	if socket == nil {
		return func() {}
	}
	defer runtime.KeepAlive(c.Conn)
	return shared.watch(pointer, socket, gone)
}

func (w *watcher) watch(pointer any, socket syscall.RawConn, gone func()) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.epoll == nil && w.start() != nil {
		return func() {}
	}
	number, known := w.numbers[pointer]
	if !known {
		if number = w.register(pointer, socket); number == 0 {
			return func() {}
		}
	}
	r := w.registered[number]
	if r.ended {
		go gone()
		return func() {}
	}
	if r.gone == nil {
		w.watches++
	}
	r.owner++
	r.gone = gone
	owner := r.owner
	return func() { w.unwatch(r, owner) }
}

func (w *watcher) unwatch(r *registration, owner int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.owner == owner {
		w.drop(r)
	}
}

// drop ends the watch of a registration. It is called with mu held.
func (w *watcher) drop(r *registration) {
	if r.gone == nil {
		return
	}
	r.gone = nil
	if w.watches--; w.watches == 0 && !w.resting && w.epoll != nil {
		w.resting = true
		_ = w.epoll.SetReadDeadline(time.Now().Add(linger))
	}
}

// register returns 0 when the kernel refuses. It is called with mu held.
func (w *watcher) register(pointer any, socket syscall.RawConn) (number uint64) {
	w.last++
	// Fd and Pad together are the 64 bits that come back with an event.
	event := syscall.EpollEvent{Events: hangUp, Fd: int32(w.last), Pad: int32(w.last >> 32)}
	var err error
	closed := socket.Control(func(fd uintptr) { err = syscall.EpollCtl(w.fd, syscall.EPOLL_CTL_ADD, int(fd), &event) })
	if closed != nil || err != nil {
		return 0
	}
	w.registered[w.last] = &registration{conn: pointer, freed: whenFreed(pointer, w.forget, w.last)}
	w.numbers[pointer] = w.last
	return w.last
}

// forget is called when the last reference to the connection is gone. The connection is closed by
// then.
func (w *watcher) forget(number uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r, ok := w.registered[number]; ok {
		w.drop(r)
		delete(w.registered, number)
		delete(w.numbers, r.conn)
	}
}

// start is called with mu held.
func (w *watcher) start() error {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // so that package os uses the runtime's poller
		_ = syscall.Close(fd)
		return err
	}
	w.epoll, w.fd, w.resting = os.NewFile(uintptr(fd), "epoll"), fd, false
	w.registered, w.numbers, w.watches = make(map[uint64]*registration), make(map[any]uint64), 0
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

func (w *watcher) call(number uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, ok := w.registered[number]
	if !ok {
		return
	}
	r.ended = true
	if r.gone != nil {
		go r.gone() // in a goroutine, so that the caller's code does not delay the others
	}
	w.drop(r)
}

// rest ends the watcher when its time is up and nothing is watched. A later watch starts a new one.
func (w *watcher) rest() (done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resting = false
	if w.watches == 0 {
		_ = w.epoll.Close()
		for _, r := range w.registered {
			r.freed.Stop() // otherwise a pooled connection would collect one from each watcher
		}
		w.epoll, w.registered, w.numbers = nil, nil, nil
		return true
	}
	_ = w.epoll.SetReadDeadline(time.Time{})
	return false
}
