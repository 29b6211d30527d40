//go:build unix

package main_test

import (
	"math"
	"net"
	"net/url"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutable sends the fixture's connections through a relay, with a connect timeout in seconds.
// silence makes the server fall silent: the relay keeps all connections, but forwards nothing. end
// closes them. Until then the server keeps the transactions of ended processes, with their locks.
func (f *fixture) mutable(t *testing.T, seconds int) (silence, end func()) {
	t.Helper()
	silent := make(chan struct{})
	_, end = f.relay(t, seconds, math.MaxInt, silent)
	return func() { close(silent) }, end
}

// crowded sends the fixture's connections through a relay. All but the first wait to be admitted.
func (f *fixture) crowded(t *testing.T) (admit func()) {
	t.Helper()
	admit, _ = f.relay(t, 60, 1, nil)
	return admit
}

func (f *fixture) relay(t *testing.T, seconds, atOnce int, silent <-chan struct{}) (admit, end func()) {
	t.Helper()
	u, err := url.Parse(f.url)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	target, admitted, ended := u.Host, make(chan struct{}), make(chan struct{})
	end = sync.OnceFunc(func() {
		close(ended)
		_ = listener.Close()
	})
	t.Cleanup(end)
	go func() {
		for n := 1; ; n++ {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				if n > atOnce {
					select {
					case <-admitted:
					case <-ended:
					}
				}
				server, err := net.Dial("tcp", target)
				if err != nil {
					_ = client.Close()
					return
				}
				go pass(client, server, silent, ended)
				pass(server, client, silent, ended)
			}()
		}
	}()
	query := u.Query()
	if f.postgres {
		query.Set("connect_timeout", strconv.Itoa(seconds))
	} else {
		query.Set("timeout", strconv.Itoa(seconds)+"s")
	}
	u.Host, u.RawQuery = listener.Addr().String(), query.Encode()
	f.url = u.String()
	return func() { close(admitted) }, end
}

// pass forwards what it reads, and closes both ends when that fails. Once silent, it closes nothing
// until ended.
func pass(from, to net.Conn, silent, ended <-chan struct{}) {
	defer from.Close()
	defer to.Close()
	text := make([]byte, 32<<10)
	for {
		n, err := from.Read(text)
		select {
		case <-silent:
			<-ended
			return
		default:
		}
		if _, failed := to.Write(text[:n]); err != nil || failed != nil {
			return
		}
	}
}
