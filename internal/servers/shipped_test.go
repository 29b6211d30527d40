package servers

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shipped are the kinds that are started as they ship.
var shipped = []Kind{Redis, ZooKeeper, Etcd}

func answering(server *Server) error { return answeringWithin(server, 10*time.Second) }

func answeringWithin(server *Server, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return server.Kind.answers(server.DSN)(ctx)
}

func TestShippedServersAreHandledAsDatabasesAre(t *testing.T) {
	for _, kind := range shipped {
		t.Run(kind.String(), func(t *testing.T) {
			server := private(t, kind)
			t.Log(server.Origin)
			prefix := map[Kind]string{Etcd: "http://"}[kind]
			require.Regexp(t, "^"+prefix+address.String()+"$", server.DSN)
			require.NoError(t, answering(server))
			dsn, folder := server.DSN, server.own.folder

			require.NoError(t, server.Pause())
			require.True(t, os.IsTimeout(answeringWithin(server, 300*time.Millisecond)))
			require.NoError(t, server.Continue())
			require.NoError(t, answering(server))

			require.NoError(t, server.Kill())
			require.Error(t, answering(server))
			require.NoError(t, server.Restart(context.Background()))
			require.Equal(t, dsn, server.DSN)
			require.NoError(t, answering(server))
			require.NoError(t, server.Restart(context.Background()), "while it runs")
			require.NoError(t, answering(server))

			begin := time.Now()
			require.NoError(t, server.Stop())
			require.Less(t, time.Since(begin), patience/2, "it did not obey")
			gone(t, dsn)
			require.NoDirExists(t, folder)
		})
	}
}

func TestRedisSavesAsItShipsAndItsWorkIsCounted(t *testing.T) {
	server := private(t, Redis)
	ctx := context.Background()
	require.NoError(t, line(server.DSN, "CONFIG GET save\r\nQUIT\r\n", "3600 1 300 100 60 10000")(ctx))
	require.NoError(t, line(server.DSN, "CONFIG GET appendonly\r\nQUIT\r\n", "no")(ctx))
	before := used(t, server)
	require.NoError(t, line(server.DSN, "EVAL 'for i = 1, 3e7 do end return 7' 0\r\nQUIT\r\n", ":7")(ctx))
	require.Greater(t, used(t, server)-before, 50*time.Millisecond)
}

func TestShippedServersAreNotTestedOn(t *testing.T) {
	for _, kind := range Kinds() {
		require.True(t, kind.database(), kind)
	}
	for _, kind := range shipped {
		require.False(t, kind.database(), kind)
	}
}

func TestGivenAddressIsUsed(t *testing.T) {
	for kind, name := range map[Kind]string{Redis: "TXLOCK_REDIS", ZooKeeper: "TXLOCK_ZOOKEEPER", Etcd: "TXLOCK_ETCD"} {
		t.Setenv(name, "given:1")
		server, err := Start(context.Background(), kind, Options{})
		require.NoError(t, err)
		require.Equal(t, &Server{Kind: kind, Name: kind.String(), DSN: "given:1", Origin: "given in " + name}, server)
	}
}

func TestZooKeeperNeedsJavaAndItsJars(t *testing.T) {
	_, err := zooKeeperIn(t.TempDir())
	require.ErrorContains(t, err, "zookeeper.jar")
	require.ErrorIs(t, err, os.ErrNotExist)
	t.Setenv("PATH", "")
	_, err = unpackedPrograms(context.Background(), ZooKeeper)
	require.ErrorContains(t, err, "install a JRE")
	_, err = installed(ZooKeeper)
	require.ErrorContains(t, err, "install a JRE")
}

func TestServerThatListensButIsNotReadyDoesNotAnswer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 100))
			_, _ = conn.Write([]byte("-LOADING\r\n"))
			_ = conn.Close()
		}
	}()
	loading := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer loading.Close()
	ctx := context.Background()
	require.ErrorContains(t, Redis.answers(listener.Addr().String())(ctx), "-LOADING")
	require.ErrorContains(t, ZooKeeper.answers(listener.Addr().String())(ctx), "-LOADING")
	require.ErrorContains(t, Etcd.answers(loading.URL)(ctx), "503")
}
