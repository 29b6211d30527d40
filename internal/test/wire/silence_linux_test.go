package wire

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/eventually"
)

// What is under way when the network falls silent is lost too. Else the proxy's kernel would send
// it, and again and again, and the other end would hear of it.
func TestSilenceLosesWhatIsUnderWay(t *testing.T) {
	proxy := echo(t)
	conn := dial(t, proxy)
	require.NoError(t, ask(conn, []byte("a"), enough))
	proxy.Delay(time.Second)
	_, err := conn.Write([]byte("b"))
	require.NoError(t, err)
	eventually.True(t, "the second answer at the proxy", func() bool {
		proxy.mu.Lock()
		defer proxy.mu.Unlock()
		for pair := range proxy.pairs {
			return proxy.bursts == 2 && !pair.asking
		}
		return false
	})
	require.NoError(t, proxy.Silence())
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(2*time.Second)))
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}
