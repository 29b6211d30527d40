//go:build linux && !386

package peer

import (
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// Silence is the time since the peer's kernel was last heard. known is false if c is not a TCP
// connection.
func (c Conn) Silence() (silence time.Duration, known bool) {
	_, socket := socketOf(c.Conn)
	if socket == nil {
		return 0, false
	}
	defer runtime.KeepAlive(c.Conn)
	var info syscall.TCPInfo
	size := uint32(unsafe.Sizeof(info))
	var errno syscall.Errno
	err := socket.Control(func(fd uintptr) { // package syscall has the structure, but not the call
		_, _, errno = syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.IPPROTO_TCP, syscall.TCP_INFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	})
	if err != nil || errno != 0 {
		return 0, false
	}
	// TCP keep-alive counts from these times too.
	return time.Duration(min(info.Last_ack_recv, info.Last_data_recv)) * time.Millisecond, true
}
