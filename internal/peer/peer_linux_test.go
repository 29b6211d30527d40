//go:build !386

package peer

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/leaks"
)

// The watcher stays for a while after the last watch, and may end late on a busy machine.
func TestMain(m *testing.M) {
	code := m.Run()
	if err := leaks.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// pair is a connection and its peer.
func pair(t *testing.T, network, address string) (conn, other net.Conn) {
	listener, err := net.Listen(network, address)
	require.NoError(t, err)
	defer listener.Close()
	conn, err = net.Dial(network, listener.Addr().String())
	require.NoError(t, err)
	other, err = listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(); _ = other.Close() })
	return conn, other
}

func TestWatch(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "unix" {
				address = filepath.Join(t.TempDir(), "s")
			}
			conn, other := pair(t, network, address)
			gone := make(chan struct{}, 2)
			defer Conn{tls.Client(conn, &tls.Config{})}.Watch(func() { gone <- struct{}{} })()
			_, err := other.Write([]byte("notice"))
			require.NoError(t, err)
			require.False(t, Conn{conn}.Gone(), "bytes to read are no hang-up")
			require.True(t, Conn{conn}.Unread())
			require.False(t, Conn{other}.Unread())
			require.Empty(t, gone)
			require.NoError(t, other.Close())
			<-gone
			require.True(t, Conn{conn}.Gone(), "though there are bytes to read")
			again := make(chan struct{})
			defer Conn{conn}.Watch(func() { close(again) })() // the connection is already gone
			<-again
			require.Empty(t, gone, "it calls once")
		})
	}
}

// A stopped watch does not call. Neither does a watch whose connection was closed on this side,
// even if another connection gets the number of the socket.
func TestWatchEnds(t *testing.T) {
	var called atomic.Int64
	call := func() { called.Add(1) }
	for range 50 {
		stopped, other := pair(t, "tcp", "127.0.0.1:0")
		Conn{stopped}.Watch(call)()
		require.NoError(t, other.Close())
		closed, _ := pair(t, "tcp", "127.0.0.1:0")
		stop := Conn{closed}.Watch(call)
		require.NoError(t, closed.Close())
		reused, peer := pair(t, "tcp", "127.0.0.1:0")
		gone := make(chan struct{})
		stopReused := Conn{reused}.Watch(func() { close(gone) })
		stop() // must not end the watch of the connection that now has the number
		require.NoError(t, peer.Close())
		<-gone
		stopReused()
	}
	require.Zero(t, called.Load())
}

// Many watches share one goroutine.
func TestOneWatcher(t *testing.T) {
	before := runtime.NumGoroutine()
	var called atomic.Int64
	for range 200 {
		conn, other := pair(t, "tcp", "127.0.0.1:0")
		defer other.Close()
		defer Conn{conn}.Watch(func() { called.Add(1) })()
		defer Conn{conn}.Watch(func() { called.Add(1) })() // replaces the first watch
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before+1)
	require.Zero(t, called.Load())
}

// A pooled connection outlives many watchers. None of them keeps a reference to it.
func TestWatchersLeaveNothing(t *testing.T) {
	look := func() (running bool, watched int) {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		return shared.epoll != nil, len(shared.watched)
	}
	rests := func() bool { running, watched := look(); return !running && watched == 0 }
	conn, _ := pair(t, "tcp", "127.0.0.1:0")
	for range 3 {
		eventually.True(t, "the watcher rests", rests)
		for range 10 {
			Conn{conn}.Watch(func() {})()
		}
		last := Conn{conn}.Watch(func() {})
		running, watched := look()
		require.True(t, running)
		require.Equal(t, 1, watched)
		last()
	}
}

func TestSilence(t *testing.T) {
	conn, other := pair(t, "tcp", "127.0.0.1:0")
	silent := func() time.Duration {
		gone, silence := Conn{conn}.Look()
		require.False(t, gone)
		return silence
	}
	eventually.True(t, "50 ms of silence", func() bool { return silent() > 50*time.Millisecond })
	// Each try sends data, because a stall of the machine would be silence again.
	eventually.True(t, "an answer ends the silence", func() bool {
		_, err := other.Write([]byte("x"))
		require.NoError(t, err)
		buffer := make([]byte, 1)
		_, err = conn.Read(buffer)
		require.NoError(t, err)
		_, err = conn.Write(buffer)
		require.NoError(t, err)
		return silent() < 50*time.Millisecond
	})
	require.NoError(t, conn.Close())
	require.True(t, Conn{conn}.Gone())
}
