package servers

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/eventually"
)

// The program docker is one that notes its orders. Its only container is a server that runs
// already.
func TestKilledProcessLeavesNoContainer(t *testing.T) {
	own, folder := private(t, Postgres()), t.TempDir()
	orders := filepath.Join(folder, "orders")
	docker := fmt.Sprintf(`#!/bin/sh
echo "$*" >>%s
case $1 in
run) echo 4711 ;;
port) echo %s ;;
esac
`, orders, address.FindString(own.DSN))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "docker"), []byte(docker), 0o755))
	had := func() []string {
		text, err := os.ReadFile(orders)
		require.NoError(t, err)
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
	dsn, kill := helped(t, "container", Postgres18, "PATH="+folder+":"+os.Getenv("PATH"))
	require.Equal(t, own.DSN, dsn)
	require.Equal(t, []string{
		"ps --quiet", "run --detach --rm --publish 127.0.0.1::5432 --env POSTGRES_HOST_AUTH_METHOD=trust " +
			"--env POSTGRES_DB=txlock postgres:18 -c max_connections=600", "port 4711 5432/tcp",
	}, had())
	kill()
	eventually.True(t, "the container is removed", func() bool {
		return slices.Contains(had(), "rm --force --volumes 4711")
	})
}
