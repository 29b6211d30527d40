package servers

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/must"
)

// A helper process starts a server, pauses it if told to, and waits to be killed.
func TestMain(m *testing.M) {
	role := os.Getenv("TXLOCK_TEST_HELPER")
	if role == "" {
		os.Exit(m.Run())
	}
	number, _ := strconv.Atoi(os.Getenv("TXLOCK_TEST_KIND"))
	ctx, kind := context.Background(), Kind(number)
	var server *Server
	var err error
	if role == "container" {
		server, err = startContainer(ctx, kind.String(), kind.image(Options{}), kind.answers)
	} else {
		server, err = Start(ctx, kind, Options{})
	}
	if err == nil && role == "pause" {
		err = server.Pause()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(server.DSN)
	select {}
}

// helped starts a helper process. It returns the DSN of its server, and a function that kills the
// process.
func helped(t *testing.T, role string, kind Kind, environment ...string) (dsn string, kill func()) {
	t.Helper()
	helper := exec.Command(os.Args[0])
	helper.Env = append(append(os.Environ(), "TXLOCK_TEST_HELPER="+role, fmt.Sprintf("TXLOCK_TEST_KIND=%d", kind)),
		environment...)
	output := must.Get(helper.StdoutPipe())(t)
	require.NoError(t, helper.Start())
	lines := bufio.NewScanner(output)
	require.True(t, lines.Scan())
	require.Regexp(t, address, lines.Text())
	return lines.Text(), func() {
		require.NoError(t, helper.Process.Kill())
		_ = helper.Wait()
	}
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

func TestKilledProcessLeavesNoServer(t *testing.T) {
	kind := Postgres()
	if os.Getenv(kind.variable()) != "" {
		return // a server from outside is not ours to stop
	}
	for _, before := range []string{"run", "pause"} {
		t.Run(before, func(t *testing.T) {
			dsn, kill := helped(t, before, kind)
			kill()
			gone(t, dsn)
		})
	}
}

// private starts a server that tests may kill or pause.
func private(t *testing.T, kind Kind) *Server {
	t.Helper()
	server := must.Get(startOwn(context.Background(), kind, Options{}))(t)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	return server
}

func open(t *testing.T, server *Server) *sql.DB {
	t.Helper()
	db := must.Get(sql.Open(server.Kind.driver(), server.DSN))(t)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func do(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		must.Get(db.Exec(statement))(t)
	}
}

func number(t *testing.T, db interface {
	QueryRow(query string, args ...any) *sql.Row
}, query string,
) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow(query).Scan(&n))
	return n
}

func ping(db *sql.DB) error {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	return db.PingContext(ctx)
}

// back waits until a pool has dropped the connections to the old process.
func back(t *testing.T, db *sql.DB) {
	t.Helper()
	require.Eventually(t, func() bool { return ping(db) == nil }, time.Minute, 10*time.Millisecond)
}

func TestKilledServerRestartsWithWhatWasCommitted(t *testing.T) {
	t.Parallel()
	for _, kind := range Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			server := private(t, kind)
			dsn, folder := server.DSN, server.own.folder
			db := open(t, server)
			do(t, db, "CREATE TABLE t (n INT)", "INSERT INTO t VALUES (1)")
			open := must.Get(db.Begin())(t)
			must.Get(open.Exec("INSERT INTO t VALUES (2)"))(t)
			all := []int{server.own.process.command.Process.Pid}
			if kind.Postgres() {
				all = append(all, number(t, open, "SELECT pg_backend_pid()"))
			}

			require.NoError(t, server.Kill())
			for _, pid := range all {
				line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // empty if dead but not collected yet
				require.Empty(t, string(line))
			}
			require.Error(t, ping(db))
			require.ErrorContains(t, server.Kill(), "does not run")
			require.ErrorContains(t, server.Pause(), "does not run")
			require.Error(t, open.Commit())

			require.NoError(t, server.Restart(context.Background()))
			require.Equal(t, dsn, server.DSN)
			back(t, db)
			require.Equal(t, 1, number(t, db, "SELECT count(*) FROM t"))
			do(t, db, "INSERT INTO t VALUES (3)")

			require.NoError(t, server.Restart(context.Background()), "while it runs")
			back(t, db)
			require.Equal(t, 2, number(t, db, "SELECT count(*) FROM t WHERE n IN (1, 3)"))
			require.NoError(t, server.Kill())
			require.NoError(t, server.Stop())
			require.NoDirExists(t, folder)
			require.ErrorContains(t, server.Restart(context.Background()), "was stopped")
		})
	}
}

func TestPausedServerDoesNotAnswerUntilContinue(t *testing.T) {
	t.Parallel()
	for _, kind := range Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			server := private(t, kind)
			db := open(t, server)
			require.NoError(t, db.Ping())
			require.NoError(t, server.Pause())
			require.NoError(t, server.Pause())
			require.Error(t, ping(db), "on an open connection")
			require.Error(t, ping(db), "on a new one")
			require.NoError(t, server.Continue())
			require.NoError(t, server.Continue())
			require.NoError(t, db.Ping())

			require.NoError(t, server.Pause())
			require.NoError(t, server.Restart(context.Background()))
			back(t, db)
			require.NoError(t, server.Pause())
			require.NoError(t, server.Stop())
			gone(t, server.DSN)
		})
	}
}

func TestServersThatAreNotPrivateAreLeftAlone(t *testing.T) {
	given := &Server{Name: "PostgreSQL", Origin: "given in TXLOCK_POSTGRES"}
	ctx := context.Background()
	_, cpu := given.CPU()
	for _, err := range []error{given.Kill(), given.Restart(ctx), given.Pause(), given.Continue(), cpu} {
		require.ErrorContains(t, err, "PostgreSQL (given in TXLOCK_POSTGRES) is no private instance")
	}
	require.NoError(t, given.Stop())
}

func TestPgBouncerHasAConnectionOfTheServerForEachTransaction(t *testing.T) {
	t.Parallel()
	pooled := must.Get(StartPgBouncer(t.Context(), private(t, Postgres())))(t)
	t.Cleanup(func() { require.NoError(t, pooled.Stop()) })
	db := open(t, pooled)
	var clients [2]*sql.Conn
	for i := range clients {
		clients[i] = must.Get(db.Conn(t.Context()))(t)
	}
	transaction := func(client *sql.Conn) (*sql.Tx, int) {
		tx := must.Get(client.BeginTx(t.Context(), nil))(t)
		var backend int // the argument makes it a prepared statement
		require.NoError(t, tx.QueryRow("SELECT pg_backend_pid() + $1", 0).Scan(&backend))
		return tx, backend
	}
	tx, first := transaction(clients[0])
	require.NoError(t, tx.Commit())
	taken, second := transaction(clients[1])
	tx, third := transaction(clients[0])
	require.Equal(t, first, second)
	require.NotEqual(t, first, third, "in the second transaction of the same client")
	require.NoError(t, errors.Join(tx.Commit(), taken.Commit()))
}

// When MariaDB starts, it removes from the folder of its temporary tables what looks left over,
// even if it belongs to another server.
func TestTemporaryTablesAreKeptApart(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{MySQL, MariaDB} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			server := private(t, kind)
			var folder string
			require.NoError(t, open(t, server).QueryRow("SELECT @@tmpdir").Scan(&folder))
			require.Equal(t, server.own.folder, folder)
		})
	}
}
