package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/must"
)

// echo starts a server that sends back what it receives, and a proxy in front of it.
func echo(t *testing.T) *Proxy {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	proxy := must.Get(Listen(listener.Addr().String()))(t)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	return proxy
}

func dial(t *testing.T, proxy *Proxy) net.Conn {
	t.Helper()
	conn := must.Get(net.Dial("tcp", proxy.Addr()))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask sends data and waits for its echo, for limit at most.
func ask(conn net.Conn, data []byte, limit time.Duration) error {
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if _, err := conn.Write(data); err != nil {
		return err
	}
	answer := make([]byte, len(data))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return err
	}
	if !bytes.Equal(answer, data) {
		return errors.New("another echo")
	}
	return nil
}

const enough = 30 * time.Second

func TestNetworkDropsEverythingAndThenCloses(t *testing.T) {
	proxy := echo(t)
	open := dial(t, proxy)
	require.NoError(t, ask(open, []byte("a"), enough))
	proxy.Behave(Network{Drop: true})
	fresh := dial(t, proxy)
	for _, conn := range []net.Conn{open, fresh} {
		require.ErrorIs(t, ask(conn, []byte("lost"), 100*time.Millisecond), os.ErrDeadlineExceeded)
	}
	proxy.Behave(Network{})
	for _, conn := range []net.Conn{open, fresh} {
		require.NoError(t, conn.SetDeadline(time.Now().Add(enough)))
		_, err := conn.Read(make([]byte, 1))
		require.Error(t, err)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "it is closed")
	}
	require.NoError(t, ask(dial(t, proxy), []byte("b"), enough))
}

// ends are both ends of a connection through a proxy.
func ends(t *testing.T) (proxy *Proxy, near, far net.Conn) {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	proxy = must.Get(Listen(listener.Addr().String()))(t)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	near = dial(t, proxy)
	far = must.Get(listener.Accept())(t)
	t.Cleanup(func() { require.NoError(t, far.Close()) })
	return proxy, near, far
}

func TestNetworkDropsACloseAsWell(t *testing.T) {
	proxy, near, far := ends(t)
	proxy.Behave(Network{Drop: true})
	require.NoError(t, near.Close())
	require.NoError(t, far.SetDeadline(time.Now().Add(100*time.Millisecond)))
	_, err := far.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	proxy.Behave(Network{})
	require.NoError(t, far.SetDeadline(time.Now().Add(enough)))
	_, err = far.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

func TestNetworkResets(t *testing.T) {
	proxy := echo(t)
	open := dial(t, proxy)
	require.NoError(t, ask(open, []byte("a"), enough))
	proxy.Behave(Network{Reset: true})
	for _, conn := range []net.Conn{open, dial(t, proxy)} {
		require.ErrorIs(t, ask(conn, []byte("b"), enough), syscall.ECONNRESET)
	}
	proxy.Behave(Network{})
	require.NoError(t, ask(dial(t, proxy), []byte("c"), enough))
}

func TestNetworkIsSlow(t *testing.T) {
	proxy := echo(t)
	conn := dial(t, proxy)
	for _, c := range []struct {
		network Network
		size    int
		least   time.Duration
	}{
		{Network{Delay: 50 * time.Millisecond}, 1, 100 * time.Millisecond},
		{Network{Rate: 1000}, 200, 300 * time.Millisecond}, // each way takes 200 ms, and they overlap
	} {
		proxy.Behave(c.network)
		begin := time.Now()
		require.NoError(t, ask(conn, make([]byte, c.size), enough))
		require.GreaterOrEqual(t, time.Since(begin), c.least, "%+v", c.network)
	}
	proxy.Behave(Network{Rate: 1})
	time.AfterFunc(50*time.Millisecond, func() { proxy.Behave(Network{}) })
	require.NoError(t, ask(conn, make([]byte, 1000), enough), "it is mended meanwhile")
}

func TestDelaysDoNotAddUp(t *testing.T) {
	const delay, apart = 400 * time.Millisecond, 200 * time.Millisecond
	took := time.Hour
	for run := 0; run < 5 && took >= 3*delay; run++ { // a busy machine makes some of them late
		proxy := echo(t)
		conn := dial(t, proxy)
		proxy.Delay(delay)
		begin := time.Now()
		must.Get(conn.Write([]byte("a")))(t)
		time.Sleep(apart)
		must.Get(conn.Write([]byte("b")))(t)
		require.NoError(t, conn.SetDeadline(time.Now().Add(enough)))
		answer := make([]byte, 2)
		must.Get(io.ReadFull(conn, answer))(t)
		require.Equal(t, "ab", string(answer))
		took = time.Since(begin)
		require.GreaterOrEqual(t, took, apart+2*delay)
	}
	require.Less(t, took, 3*delay, "the second piece waited for the first one's delay")
}

func TestWhatIsUnderWayArrivesBeforeTheEnd(t *testing.T) {
	proxy, client, server := ends(t)
	proxy.Delay(50 * time.Millisecond)
	must.Get(client.Write([]byte("last words")))(t)
	require.NoError(t, client.Close())
	require.NoError(t, server.SetDeadline(time.Now().Add(enough)))
	require.Equal(t, "last words", string(must.Get(io.ReadAll(server))(t)))
}

func TestBurstsAreRoundTrips(t *testing.T) {
	proxy := echo(t)
	conn := dial(t, proxy)
	for range 3 {
		require.NoError(t, ask(conn, []byte("a"), enough))
	}
	require.Equal(t, 3, proxy.Bursts())
	require.Equal(t, 1, proxy.Open())
}
