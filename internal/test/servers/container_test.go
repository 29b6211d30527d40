package servers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/eventually"
)

// engine is a folder with a program that takes the orders of docker. Its only container is a server
// that already runs.
type engine struct {
	folder string
	orders string // the file with those that it has had
}

func newEngine(t *testing.T, server *Server) *engine {
	t.Helper()
	e := &engine{folder: t.TempDir()}
	e.orders = filepath.Join(e.folder, "orders")
	text := fmt.Sprintf(`#!/bin/sh
echo "$*" >>%s
case $1 in
run) echo 4711 ;;
port) echo %s ;;
esac
`, e.orders, address.FindString(server.DSN))
	require.NoError(t, os.WriteFile(filepath.Join(e.folder, "docker"), []byte(text), 0o755))
	return e
}

// path is where programs are looked for.
func (e *engine) path() string { return e.folder + ":" + os.Getenv("PATH") }

func (e *engine) had(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(e.orders)
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

const removal = "rm --force --volumes 4711"

func TestContainerIsRemovedWhenItIsStopped(t *testing.T) {
	own := private(t, Postgres())
	engine := newEngine(t, own)
	t.Setenv("PATH", engine.path())
	server, err := startContainer(t.Context(), "PostgreSQL 18", Postgres18.image(Options{}), Postgres18.answers)
	require.NoError(t, err)
	orders := []string{
		"ps --quiet", "run --detach --rm --publish 127.0.0.1::5432 --env POSTGRES_HOST_AUTH_METHOD=trust " +
			"--env POSTGRES_DB=txlock postgres:18 -c max_connections=600", "port 4711 5432/tcp",
	}
	require.Equal(t, orders, engine.had(t))
	require.Equal(t, own.DSN, server.DSN)
	require.Equal(t, "container postgres:18", server.Origin)
	require.NoError(t, server.Stop())
	require.Equal(t, append(orders, removal), engine.had(t))
}

func TestKilledProcessLeavesNoContainer(t *testing.T) {
	own := private(t, Postgres())
	engine := newEngine(t, own)
	dsn, kill := helped(t, "container", Postgres18, "PATH="+engine.path())
	require.Equal(t, own.DSN, dsn)
	require.NotContains(t, engine.had(t), removal)
	kill()
	eventually.True(t, "the container is removed", func() bool { return slices.Contains(engine.had(t), removal) })
}

func TestServerInAContainerThatDoesNotAnswerIsRemoved(t *testing.T) {
	engine := newEngine(t, private(t, Postgres()))
	t.Setenv("PATH", engine.path())
	ctx, cancel := context.WithCancel(t.Context())
	never := func(ctx context.Context, _ string) error {
		cancel()
		return ctx.Err()
	}
	_, err := startContainer(ctx, "PostgreSQL 18", Postgres18.image(Options{}), never)
	require.ErrorIs(t, err, context.Canceled)
	require.Contains(t, engine.had(t), removal)
}

func TestContainersThatDoNotStart(t *testing.T) {
	for _, c := range []struct{ program, says string }{
		{"echo no daemon >&2; exit 1", "no container engine answers: docker: exit status 1: no daemon"},
		{"[ $1 = ps ] || { echo no such image >&2; exit 125; }", "container mysql:9: no such image"},
		{"[ $1 != port ] || { echo no such container >&2; exit 1; }", "container mysql:9: no such container"},
	} {
		folder := t.TempDir()
		t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
		program := "#!/bin/sh\n" + c.program + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(folder, "docker"), []byte(program), 0o755))
		_, err := startContainer(t.Context(), "MySQL", MySQL.image(Options{}), MySQL.answers)
		require.ErrorContains(t, err, c.says)
	}
	t.Setenv("PATH", t.TempDir())
	_, err := startContainer(t.Context(), "MySQL", MySQL.image(Options{}), MySQL.answers)
	require.ErrorContains(t, err, "executable file not found")
}
