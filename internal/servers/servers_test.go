package servers

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A helper process, which starts a server and is then killed.
func TestMain(m *testing.M) {
	if os.Getenv("TXLOCK_TEST_HELPER") == "" {
		os.Exit(m.Run())
	}
	server, err := Start(context.Background(), Postgres(), Options{})
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
	}, 10*time.Second, 10*time.Millisecond, "the server still listens")
}

func TestServersStartAndStop(t *testing.T) {
	for _, kind := range Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			server, err := Start(context.Background(), kind, Options{Durable: true})
			require.NoError(t, err)
			t.Log(server.Origin)
			driver := map[bool]string{true: "mysql", false: "pgx"}[kind == MySQL || kind == MariaDB]
			db, err := sql.Open(driver, server.DSN)
			require.NoError(t, err)
			var version string
			require.NoError(t, db.QueryRow("SELECT version()").Scan(&version))
			t.Log(version)
			require.NoError(t, db.Close())
			require.NoError(t, server.Stop())
			require.NoError(t, server.Stop())
			if os.Getenv(kind.variable()) == "" {
				gone(t, server.DSN)
			}
		})
	}
}

func TestKilledProcessLeavesNoServer(t *testing.T) {
	if os.Getenv(Postgres().variable()) != "" {
		return // that one is not ours to stop
	}
	helper := exec.Command(os.Args[0])
	helper.Env = append(os.Environ(), "TXLOCK_TEST_HELPER=1")
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
}
