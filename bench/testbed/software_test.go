package testbed

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/internal/test/servers"
)

// A helper process starts a server, and waits to be killed.
func TestMain(m *testing.M) {
	name := os.Getenv("TXLOCK_TEST_SERVER")
	if name == "" {
		os.Exit(m.Run())
	}
	server, err := software[contest.Server(name)].Start(context.Background())
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(server.DSN)
	select {}
}

var address = regexp.MustCompile(`127\.0\.0\.1:\d+`)

func gone(t *testing.T, dsn string) {
	t.Helper()
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", address.FindString(dsn))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, time.Minute, 10*time.Millisecond, "the server still listens")
}

// private starts a server that faults can be applied to.
func private(t *testing.T, s servers.Software) *servers.Server {
	t.Helper()
	t.Setenv(s.Variable, "")
	server, err := s.Start(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	t.Log(server.Origin)
	return server
}

func TestServersAnswerAndStop(t *testing.T) {
	for name, s := range software {
		t.Run(string(name), func(t *testing.T) {
			server := private(t, s)
			prefix := map[contest.Server]string{contest.Etcd: "http://"}[name]
			require.Regexp(t, "^"+prefix+address.String()+"$", server.DSN)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			require.NoError(t, s.Answers(ctx, server.DSN))
			begin := time.Now()
			require.NoError(t, server.Stop())
			require.Less(t, time.Since(begin), 10*time.Second, "it did not obey")
			gone(t, server.DSN)
			folders, err := filepath.Glob(filepath.Join(os.TempDir(), fmt.Sprintf("txlock-server-%d-*", os.Getpid())))
			require.NoError(t, err)
			require.Empty(t, folders)
		})
	}
}

func TestKilledProcessLeavesNoServer(t *testing.T) {
	for name, s := range software {
		t.Run(string(name), func(t *testing.T) {
			helper := exec.Command(os.Args[0])
			helper.Env = append(os.Environ(), "TXLOCK_TEST_SERVER="+string(name), s.Variable+"=")
			output, err := helper.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, helper.Start())
			lines := bufio.NewScanner(output)
			require.True(t, lines.Scan())
			dsn := lines.Text()
			require.Regexp(t, address, dsn)
			require.NoError(t, helper.Process.Kill())
			_ = helper.Wait()
			gone(t, dsn)
		})
	}
}

func TestRedisSavesAsItShipsAndItsWorkIsCounted(t *testing.T) {
	server := private(t, redis)
	ask := func(request, begin string) {
		t.Helper()
		require.NoError(t, answers(talk(context.Background(), server.DSN, request+"\r\nQUIT\r\n", begin)))
	}
	ask("CONFIG GET save", "3600 1 300 100 60 10000")
	ask("CONFIG GET appendonly", "no")
	before, err := server.CPU()
	require.NoError(t, err)
	ask("EVAL 'for i = 1, 3e7 do end return 7' 0", ":7")
	after, err := server.CPU()
	require.NoError(t, err)
	require.Greater(t, after-before, 50*time.Millisecond)
}

func TestGivenAddressIsUsed(t *testing.T) {
	for name, variable := range map[contest.Server]string{
		contest.Redis: "TXLOCK_REDIS", contest.Etcd: "TXLOCK_ETCD",
	} {
		t.Setenv(variable, "given:1")
		server, err := software[name].Start(context.Background())
		require.NoError(t, err)
		require.Equal(t, &servers.Server{Name: string(name), DSN: "given:1", Origin: "given in " + variable}, server)
	}
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
	require.ErrorContains(t, redis.Answers(ctx, listener.Addr().String()), "-LOADING")
	require.ErrorContains(t, servers.Etcd.Answers(ctx, loading.URL), "503")
}
