package servers

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// engine answers like a container engine. Its only container is a server that already runs.
type engine struct {
	host    string // the value of DOCKER_HOST
	created chan created
	removed chan struct{}
}

// created holds the settings that a container was created with.
type created struct {
	Image string
	Env   []string
	Cmd   []string
}

func startEngine(t *testing.T, server *Server) *engine {
	t.Helper()
	folder, err := os.MkdirTemp("", "txlock-engine-") // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	socket := filepath.Join(folder, "s")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	e := &engine{host: "unix://" + socket, created: make(chan created, 1), removed: make(chan struct{}, 1)}
	_, port, err := net.SplitHostPort(address.FindString(server.DSN))
	require.NoError(t, err)

	handler := http.NewServeMux()
	handler.HandleFunc("GET /_ping", func(http.ResponseWriter, *http.Request) {})
	handler.HandleFunc("GET /images/{name}/json", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("{}"))
	})
	handler.HandleFunc("POST /containers/create", func(w http.ResponseWriter, r *http.Request) {
		var c created
		_ = json.NewDecoder(r.Body).Decode(&c)
		e.created <- c
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"Id": "1"}`))
	})
	handler.HandleFunc("POST /containers/1/start", func(http.ResponseWriter, *http.Request) {})
	handler.HandleFunc("GET /containers/1/json", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"Id": "1", "State": {"Running": true}, "NetworkSettings": {"Ports": {"5432/tcp": [
			{"HostIp": "127.0.0.1", "HostPort": "` + port + `"}]}}}`))
	})
	handler.HandleFunc("POST /containers/1/stop", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	handler.HandleFunc("DELETE /containers/1", func(http.ResponseWriter, *http.Request) { e.removed <- struct{}{} })
	version := regexp.MustCompile(`^/v[0-9.]+/`)
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = version.ReplaceAllString(r.URL.Path, "/")
		handler.ServeHTTP(w, r)
	}))
	_ = web.Listener.Close()
	web.Listener = listener
	web.Start()
	t.Cleanup(web.Close)
	return e
}

func TestContainerIsRemovedWhenItIsStopped(t *testing.T) {
	own := private(t, Postgres())
	engine := startEngine(t, own)
	t.Setenv("DOCKER_HOST", engine.host)
	image := Postgres18.image(Options{})
	server, err := startContainer(context.Background(), "PostgreSQL 18", image, Postgres18.answers)
	require.NoError(t, err)
	require.Equal(t, created{"postgres:18", image.Environment, image.Command}, <-engine.created)
	require.Equal(t, own.DSN, server.DSN)
	require.Equal(t, "container postgres:18", server.Origin)
	require.Empty(t, engine.removed)
	require.NoError(t, server.Stop())
	require.Len(t, engine.removed, 1)
}

func TestKilledProcessLeavesNoContainer(t *testing.T) {
	own := private(t, Postgres())
	engine := startEngine(t, own)
	dsn, kill := helped(t, "container", Postgres18, "DOCKER_HOST="+engine.host)
	require.Equal(t, own.DSN, dsn)
	require.Empty(t, engine.removed)
	kill()
	<-engine.removed
}

func TestServerInAContainerThatDoesNotAnswerIsRemoved(t *testing.T) {
	own := private(t, Postgres())
	engine := startEngine(t, own)
	t.Setenv("DOCKER_HOST", engine.host)
	ctx, cancel := context.WithCancel(context.Background())
	never := func(ctx context.Context, _ string) error {
		cancel()
		return ctx.Err()
	}
	_, err := startContainer(ctx, "PostgreSQL 18", Postgres18.image(Options{}), never)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, engine.removed, 1)
}

func TestAbsentEngineIsNoticedAtOnce(t *testing.T) {
	sick := httptest.NewServer(http.NotFoundHandler())
	defer sick.Close()
	for _, host := range []string{
		"unix://" + filepath.Join(t.TempDir(), "none"), "tcp://127.0.0.1:1",
		strings.Replace(sick.URL, "http", "tcp", 1),
	} {
		t.Setenv("DOCKER_HOST", host)
		begin := time.Now()
		_, err := startContainer(context.Background(), "MySQL", MySQL.image(Options{}), MySQL.answers)
		require.ErrorContains(t, err, "no container engine answers")
		require.Less(t, time.Since(begin), 10*time.Second)
	}
}

func TestProgramThatFailsTellsWhy(t *testing.T) {
	program, err := containerProgram()
	require.NoError(t, err)
	program.Env = append(program.Env, "DOCKER_HOST=tcp://127.0.0.1:1")
	_, _, err = runContainer(context.Background(), program, MySQL.image(Options{}))
	require.ErrorContains(t, err, "container mysql:9")
	require.ErrorContains(t, err, "cannot connect")
}
