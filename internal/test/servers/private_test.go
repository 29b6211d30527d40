package servers

import (
	"context"
	"net"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPortsStayReserved(t *testing.T) {
	port, err := freePort()
	require.NoError(t, err)
	runtime.GC()
	runtime.GC() // the first run's finalizers have closed their files by now
	_, err = net.ListenPacket("udp", "127.0.0.1:"+strconv.Itoa(port))
	require.Error(t, err, "another process would get it")
	listener, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	require.NoError(t, err, "the server gets it")
	require.NoError(t, listener.Close())
}

func TestFirstProbeMaySucceedTwice(t *testing.T) {
	for _, kind := range Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			server := private(t, kind)
			require.NoError(t, kind.creates(server.DSN)(context.Background()))
		})
	}
}
