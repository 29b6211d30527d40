package main_test

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/must"
)

// Viewers that ask and never read do not stay for ever, with what they have not read.
func TestServeHangsUp(t *testing.T) {
	t.Parallel()
	_, address := installed(t, engines[0]).serve(t)
	address = strings.Trim(strings.TrimPrefix(address, "http:"), "/")
	ask := strings.Repeat("GET /style.css HTTP/1.1\r\nHost: localhost\r\n\r\n", 2000) // of 4 kB each
	for range 10 {
		dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { // before it connects: the window is agreed then
				_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
			})
		}}
		viewer := must.Get(dialer.DialContext(t.Context(), "tcp", address))(t)
		t.Cleanup(func() { _ = viewer.Close() })
		go func() { _, _ = viewer.Write([]byte(ask)) }() // it may not take all of it
	}
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	number := must.Get(strconv.Atoi(port))(t)
	// A viewer's kernel may hear of it late, so the server's is asked: its port, "established".
	open := regexp.MustCompile(fmt.Sprintf(`: 0100007F:%04X \S+ 01 `, number)) // with the viewer's port
	established := func() int {
		sockets := must.Get(os.ReadFile("/proc/net/tcp"))(t)
		// That list is read in parts, and may have one twice.
		return len(slices.Compact(slices.Sorted(slices.Values(open.FindAllString(string(sockets), -1)))))
	}
	require.Equal(t, 10, established())
	eventually.Every(t, "the end of each viewer", 100*time.Millisecond, func() bool { return established() == 0 })
}
