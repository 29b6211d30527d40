package doctor_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/wire"
)

// bounced is the site behind a PgBouncer with more settings. Its user is the server's
// administrator: PgBouncer logs in as that user, whoever the client is.
func (s *site) bounced(t *testing.T, settings ...string) *site {
	t.Helper()
	pooler := must.Get(servers.StartPgBouncer(background, s.Server, settings...))(t)
	t.Cleanup(func() { require.NoError(t, pooler.Stop()) })
	through := *s
	through.engine = &engine{Server: pooler, postgres: true, look: s.look}
	through.dsn = through.address(t, "", s.name)
	return &through
}

func TestPgBouncer(t *testing.T) {
	t.Parallel()
	onSites(t, isPostgres, func(t *testing.T, s *site) {
		for _, c := range []struct {
			name, found, fix string
			settings, want   []string
		}{
			{name: "transactions", found: "is in between, and shares the server's sessions between transactions"},
			{
				name: "sessions", settings: []string{"pool_mode=session"},
				found: "gives each client a session of the server's own",
			},
			{
				name: "no prepared statements", settings: []string{"max_prepared_statements=0"},
				want: []string{"pooler: failure"}, found: "max_prepared_statements = 0",
				fix: "# in pgbouncer.ini (PgBouncer 1.21 or later)\nmax_prepared_statements = 200",
			},
			{
				name: "not visible", settings: []string{"auth_type=trust", "auth_file=" + users(t)},
				want: []string{"pooler: note"}, found: "not visible to this user", fix: "stats_users = postgres",
			},
			{
				name: "one connection", settings: []string{"default_pool_size=1"},
				want: []string{"row-locking: warning"}, found: "is in between",
			},
			{
				name: "timeouts", settings: []string{
					"query_timeout=100", "idle_transaction_timeout=7",
					"transaction_timeout=0",
				},
				want:  []string{"pooler-idle-transaction-timeout: warning", "pooler-query-timeout: warning"},
				found: "is in between",
			},
		} {
			t.Run(c.name, func(t *testing.T) {
				findings := s.bounced(t, c.settings...).examine(t)
				ails := slices.DeleteFunc(ailing(findings), func(ail string) bool {
					// PgBouncer may give the connection that has the statement, or another.
					return ail == "row-locking: note"
				})
				require.Equal(t, c.want, ails)
				finding := find(t, findings, "pooler")
				require.Contains(t, finding.Found, c.found)
				require.Contains(t, finding.Fix.Text, c.fix)
			})
		}
		simple := s.bounced(t, "max_prepared_statements=0")
		simple.dsn = simple.address(t, "", s.name, "default_query_exec_mode", "simple_protocol")
		require.Empty(t, simple.findings(t), "what the fix names helps as well")
	})
}

// users is a file with the users that PgBouncer accepts, except for its own database. PgBouncer
// runs as nobody.
func users(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	file := filepath.Join(folder, "users")
	require.NoError(t, os.WriteFile(file, []byte(`"postgres" ""`+"\n"), 0o644))
	// The umask may have removed these bits.
	for path, mode := range map[string]os.FileMode{filepath.Dir(folder): 0o755, folder: 0o755, file: 0o644} {
		require.NoError(t, os.Chmod(path, mode))
	}
	return file
}

// PgBouncer's timeouts do to locks what the doctor says.
func TestPgBouncerTimeoutsCut(t *testing.T) {
	t.Parallel()
	onSites(t, isPostgres, func(t *testing.T, s *site) {
		locks := func(settings ...string) *txlock.Locker[pgx.Tx] {
			dsn := s.dsn
			if len(settings) > 0 {
				dsn = s.bounced(t, settings...).dsn
			}
			return locker(t, postgres.Open, dsn)
		}
		for _, limit := range []string{"idle_transaction_timeout", "transaction_timeout"} {
			require.ErrorIs(t, locks(limit+"=1").Mutex("a").Do(background, func(ctx context.Context, _ pgx.Tx) error {
				<-ctx.Done()
				return context.Cause(ctx)
			}), txlock.ErrLost, limit)
		}
		held := must.Get(locks().Mutex("b").Lock(background))(t)
		_, err := locks("query_timeout=1").Mutex("b").Lock(background)
		require.Error(t, err)
		require.NoError(t, held.Unlock(background))
	})
}

// A proxy that only forwards bytes does not matter to a lock.
func TestForwarded(t *testing.T) {
	onSites(t, all, func(t *testing.T, s *site) {
		proxy := must.Get(wire.Listen(s.Address()))(t)
		t.Cleanup(func() { require.NoError(t, proxy.Close()) })
		direct := s.Address()
		s.dsn = strings.Replace(s.dsn, direct, proxy.Addr(), 1)
		findings := s.examine(t)
		require.Equal(t, s.baseline, ailing(findings))
		between := map[bool]string{true: "pooler", false: "proxy"}[s.postgres]
		require.Contains(t, find(t, findings, between).Found, "the server itself answers")
	})
}

// A proxy that speaks MySQL's protocol, such as ProxySQL or MaxScale, numbers its clients itself.
func TestProxySpeaksProtocol(t *testing.T) {
	onSites(t, isMySQL, func(t *testing.T, s *site) {
		s.dsn = strings.Replace(s.dsn, s.Address(), renumbering(t, s.Address()), 1)
		findings := s.examine(t)
		require.Equal(t, replaced(s.baseline, []string{"proxy: warning"}), ailing(findings))
		require.Contains(t, find(t, findings, "proxy").Found, "calls connection 305419896")
	})
}

// renumbering forwards connections to a server, and changes the number in the greeting. It returns
// its own address.
func renumbering(t *testing.T, address string) string {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var forwards sync.WaitGroup
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		forwards.Wait()
	})
	forwards.Go(func() {
		for {
			client, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				forwards.Go(func() { renumber(client, address) })
			}
		}
	})
	return listener.Addr().String()
}

func renumber(client net.Conn, address string) {
	defer client.Close()
	server, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	header := make([]byte, 4)
	if _, err := io.ReadFull(server, header); err != nil {
		return
	}
	greeting := make([]byte, int(header[0])|int(header[1])<<8)
	if _, err := io.ReadFull(server, greeting); err != nil {
		return
	}
	number := 1 + strings.IndexByte(string(greeting[1:]), 0) + 1 // after the protocol and the version
	copy(greeting[number:], []byte{0x78, 0x56, 0x34, 0x12})
	if _, err := client.Write(append(header, greeting...)); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}
