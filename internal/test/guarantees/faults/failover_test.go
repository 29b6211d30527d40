package faults

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

func TestFailover(t *testing.T) {
	for _, e := range testbed.EnginesWhere(func(e *testbed.Engine) bool { return !e.Given() }) {
		ways := map[string]func(*testing.T){}
		if e.Postgres {
			ways["postgres.Open"] = func(t *testing.T) { byHosts(t, e.Kind, testbed.PgxOpened()) }
			ways["sql.DB"] = func(t *testing.T) { byHosts(t, e.Kind, testbed.PostgresSQL[0]) }
		} else {
			ways["HAProxy"] = func(t *testing.T) { throughHAProxy(t, e.Kind, testbed.MySQLOpened()) }
			if e.Kind == servers.MariaDB || tier.Full() { // a pair of MySQL takes long to start
				ways["dial"] = func(t *testing.T) { byDial(t, e.Kind, testbed.MySQLOpened()) }
			}
		}
		for name, way := range ways {
			t.Run(e.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				way(t)
			})
		}
	}
}

// site is a pair, and the address by which clients find its primary.
type site struct {
	*servers.Fleet
	dsn    string
	hosts  bool // both are in dsn
	engine map[*servers.Server]*testbed.Engine
}

func newSite(t *testing.T, kind servers.Kind) *site {
	t.Helper()
	pair := must.Get(servers.StartPair(background, kind, true))(t)
	t.Cleanup(func() { require.NoError(t, pair.Stop()) })
	s := &site{Fleet: pair, engine: map[*servers.Server]*testbed.Engine{}}
	for _, server := range pair.Servers() {
		e := must.Get(testbed.NewEngine(server))(t)
		t.Cleanup(func() { _ = e.Admin.Close() })
		s.engine[server] = e
	}
	return s
}

// byHosts: one address for both, as in a program that survives a failover.
func byHosts[Tx any](t *testing.T, kind servers.Kind, c testbed.Client[Tx]) {
	s := newSite(t, kind)
	s.hosts = true
	first, second := s.engine[s.Primary()], s.engine[s.Standby()]
	s.dsn = strings.Replace(first.DSNFor("failover", "", url.Values{"target_session_attrs": {"read-write"}}),
		first.Address(), first.Address()+","+second.Address(), 1)
	locks := lockerOf(t, s, c)
	require.NoError(t, locks.Install(background))
	standbyDriver, standbyPool := c.Connect(t, second.DSNFor("standby", "", nil), 2)
	t.Cleanup(standbyPool.Close)
	leadOnce(t, locks)
	eventually.Every(t, "the standby has the term", testbed.PollEvery, func() bool {
		_, err := txlock.New(standbyDriver).Election("failover", "onlooker").Leader(background)
		return err != nil && strings.Contains(err.Error(), "is a standby") && !errors.Is(err, txlock.ErrNoLeader)
	})
	failover(t, s, c, locks)
}

func throughHAProxy(t *testing.T, kind servers.Kind, c testbed.Client[*sql.Tx]) {
	s := newSite(t, kind)
	proxy := must.Get(servers.StartHAProxy(background, s.Fleet))(t)
	t.Cleanup(func() { require.NoError(t, proxy.Stop()) })
	s.dsn = proxy.DSN
	locks := lockerOf(t, s, c)
	require.NoError(t, locks.Install(background))
	failover(t, s, c, locks)
}

// byDial: the program itself looks for the server that takes writes, as the documentation shows.
func byDial(t *testing.T, kind servers.Kind, c testbed.Client[*sql.Tx]) {
	s := newSite(t, kind)
	network := "pair" + strings.ReplaceAll(kind.String(), " ", "")
	mysql.RegisterDialContext(network, func(ctx context.Context, _ string) (net.Conn, error) {
		var failed []error
		for _, server := range s.Servers() {
			e := s.engine[server]
			var readOnly bool
			err := e.Admin.QueryRowContext(ctx, "SELECT CONCAT(@@read_only) NOT IN ('0', 'OFF')").Scan(&readOnly)
			if err == nil && !readOnly {
				return new(net.Dialer).DialContext(ctx, "tcp", e.Address())
			}
			failed = append(failed, err)
		}
		return nil, errors.Join(append(failed, errors.New("no server takes writes"))...)
	})
	t.Cleanup(func() { mysql.DeregisterDialContext(network) })
	s.dsn = servers.Client + "@" + network + "(both)/txlock"
	locks := lockerOf(t, s, c)
	require.NoError(t, locks.Install(background))
	failover(t, s, c, locks)
}

func lockerOf[Tx any](t *testing.T, s *site, c testbed.Client[Tx]) *txlock.Locker[Tx] {
	t.Helper()
	return c.Locker(t, s.dsn, 4, txlock.WithFencing(), txlock.WithSlots(16))
}

// The primary dies, or is switched over in order, and its synchronous standby is promoted. The
// same Locker goes on there, and tokens go on increasing. The former primary comes back as a
// standby, and takes over in its turn: what each draws tokens from does not stop the replication.
func failover[Tx any](t *testing.T, s *site, c testbed.Client[Tx], locks *txlock.Locker[Tx]) {
	s.engine[s.Primary()].AsAdmin(t, "CREATE TABLE done (id int primary key)")
	work := func(id int) func(context.Context, Tx) error {
		return func(ctx context.Context, tx Tx) error {
			return c.Exec(ctx, tx, fmt.Sprintf("INSERT INTO done VALUES (%d)", id))
		}
	}
	require.NoError(t, locks.Mutex("a").Do(background, work(0)))
	var last int64
	for range 100 { // more tokens than PostgreSQL's sequence logs ahead
		lock := testbed.Lock(t, locks.Mutex("a"))
		require.Greater(t, lock.Token(), last)
		last = lock.Token()
		testbed.Unlock(t, lock)
	}
	for n, way := range []servers.Way{servers.Planned, servers.Killed, servers.Planned} {
		lock := testbed.Lock(t, locks.Mutex("a"))
		term := leadOnce(t, locks)
		require.NoError(t, s.End(background, way), "%v", way)
		testbed.Receive(t, lock.Context().Done())
		require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrLost)
		require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
		require.NoError(t, s.Promote(background))

		next := again(t, s, locks)
		require.Greater(t, testbed.RunOf(next.Token()), testbed.RunOf(lock.Token()), "%v", way)
		testbed.Unlock(t, next)
		require.Greater(t, testbed.RunOf(leadOnce(t, locks)), testbed.RunOf(term))
		require.NoError(t, locks.Mutex("a").Do(background, work(n+1)))
		var rows int
		require.NoError(t, s.engine[s.Primary()].Admin.QueryRow("SELECT COUNT(*) FROM done").Scan(&rows))
		require.Equal(t, n+2, rows, "what was acknowledged is there")
		require.NoError(t, s.Rejoin(background), "%v", way)
	}
}

// again locks on the new primary: at once by hosts, otherwise as soon as the proxy has found it.
func again[Tx any](t *testing.T, s *site, locks *txlock.Locker[Tx]) (lock *txlock.Lock) {
	t.Helper()
	eventually.Every(t, "a lock on the new primary", 5*time.Millisecond, func() bool {
		var err error
		lock, err = locks.Mutex("a").Lock(background)
		if s.hosts {
			require.NoError(t, err)
		}
		return err == nil
	})
	return lock
}

// leadOnce leads for a moment.
func leadOnce[Tx any](t *testing.T, locks *txlock.Locker[Tx]) (term int64) {
	t.Helper()
	require.NoError(t, locks.Election("failover", "me").Lead(background, func(_ context.Context, number int64) error {
		term = number
		return nil
	}))
	return term
}
