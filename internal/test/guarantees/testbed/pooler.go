package testbed

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/wire"
)

// Through is the engine behind a pooler.
func (e *Engine) Through(pooler *servers.Server) *Engine {
	return &Engine{Server: pooler, Admin: e.Admin, Postgres: e.Postgres, Pooled: true, census: e.census, views: e.views}
}

// PgBouncer is the newest PostgreSQL behind a PgBouncer in transaction mode, which shares the
// server's sessions between its clients, from one transaction to the next. When the test has ended,
// no session of the server may have a setting that a txlock session made.
func PgBouncer(t *testing.T) *Engine {
	t.Helper()
	through := NewestPostgres().BehindPgBouncer(t, "default_pool_size=150", "max_client_conn=1000")
	t.Cleanup(func() { unchangedSettings(t, through.Server) })
	return through
}

// BehindPgBouncer is the engine behind a PgBouncer in transaction mode with further settings.
func (e *Engine) BehindPgBouncer(t *testing.T, settings ...string) *Engine {
	t.Helper()
	pooler := must.Get(servers.StartPgBouncer(background, e.Server, settings...))(t)
	t.Cleanup(func() { require.NoError(t, pooler.Stop()) })
	return e.Through(pooler)
}

// Pgpool is the newest PostgreSQL behind a pgpool-II, which has a session of the server's for each
// of so many clients. Simple is for postgres.Open: pgpool-II begins a transaction of its own where
// an INSERT is prepared, and BEGIN READ WRITE comes too late in it. When the test has ended, the
// next clients of these sessions have no setting of txlock's.
func Pgpool(t *testing.T, clients int, simple bool) *Engine {
	t.Helper()
	newest := NewestPostgres()
	pooler := must.Get(servers.StartPgpool(background, newest.Server, clients))(t)
	t.Cleanup(func() { require.NoError(t, pooler.Stop()) })
	t.Cleanup(func() { unchangedSettings(t, pooler) })
	through := newest.Through(pooler)
	through.Pgpool = true
	if simple {
		pooler.DSN += "&default_query_exec_mode=simple_protocol"
	}
	return through
}

// Odyssey is the newest PostgreSQL behind an Odyssey in transaction mode, with further settings. It
// is checked as PgBouncer is.
func Odyssey(t *testing.T, settings ...string) *Engine {
	t.Helper()
	newest := NewestPostgres()
	pooler := must.Get(servers.StartOdyssey(background, newest.Server, settings...))(t)
	t.Cleanup(func() { require.NoError(t, pooler.Stop()) })
	t.Cleanup(func() { unchangedSettings(t, pooler) })
	return newest.Through(pooler)
}

// MySQLRouter is a MySQL behind a MySQL Router, as StartMySQLRouter has it.
func MySQLRouter(t *testing.T, idle int, settings ...string) *Engine {
	t.Helper()
	direct := Engines[slices.IndexFunc(Engines, func(e *Engine) bool { return e.Kind == servers.MySQL })]
	NewFixture(t, direct, MySQLOpened()) // one Install: while another inserts the rows of a new table, it locks them
	router := must.Get(servers.StartMySQLRouter(background, direct.Server, idle, settings...))(t)
	t.Cleanup(func() { require.NoError(t, router.Stop()) })
	through := direct.Through(router)
	through.Pooled = false // a session ends with its client, or the client with its session
	return through
}

// NewestPostgres is the engine of its newest version, but of those that the full tier adds.
func NewestPostgres() (newest *Engine) {
	for _, e := range Engines {
		if e.Postgres && !e.Further {
			newest = e
		}
	}
	return newest
}

// Keyless is the engine behind a PgBouncer that, like RDS Proxy, tells its clients no key by which
// they could cancel. It also returns the way there.
func (e *Engine) Keyless(t *testing.T, sessions int) (*Engine, *wire.Proxy) {
	t.Helper()
	proxy := Proxy(t, e.BehindPgBouncer(t, fmt.Sprintf("default_pool_size=%d", sessions)))
	proxy.HideKeys()
	return e.Through(&servers.Server{
		Kind: e.Kind, Name: "a pooler without cancels before " + e.Name, DSN: e.DSNFor("", proxy.Addr(), nil),
	}), proxy
}

func unchangedSettings(t *testing.T, pooler *servers.Server) {
	t.Helper()
	var changed int
	db := database.Open(t, "pgx", pooler.DSN)
	for range 20 {
		conn := must.Get(db.Conn(background))(t)
		defer conn.Close()
		tx := must.Get(conn.BeginTx(background, nil))(t) // pins one of the server's sessions
		defer func() { _ = tx.Rollback() }()
		require.NoError(t, tx.QueryRow("SELECT COUNT(*) FROM pg_settings WHERE source = 'session' AND "+
			"name IN ('idle_in_transaction_session_timeout', 'client_connection_check_interval', "+
			"'lock_timeout', 'tcp_user_timeout', 'default_transaction_read_only') "+
			"AND setting <> reset_val").Scan(&changed))
		require.Zero(t, changed)
	}
}

// Galera is a cluster of three nodes of MariaDB. Each fixture connects to the next node. What a
// test reads outside of a transaction is not older than what was committed on any node.
func Galera(t *testing.T) *Engine {
	t.Helper()
	cluster := must.Get(servers.StartGalera(background, servers.MariaDB))(t)
	t.Cleanup(func() { require.NoError(t, cluster.Stop()) })
	var nodes []*Engine
	for i, node := range cluster.Servers() {
		e, err := NewEngine(&servers.Server{
			Kind: node.Kind, Name: fmt.Sprintf("Galera node %d", i+1), Origin: node.Origin,
			DSN: node.DSN + "?wsrep_sync_wait=7",
		})
		require.NoError(t, err)
		t.Cleanup(func() { _ = e.Admin.Close() })
		nodes = append(nodes, e)
	}
	for _, e := range nodes {
		e.nodes = nodes
	}
	return nodes[0]
}

// IsCluster tells whether it is one of several nodes.
func (e *Engine) IsCluster() bool { return len(e.nodes) > 0 }

// node is what the next fixture connects to: of a cluster, one node after the other.
func (e *Engine) node() *Engine {
	if !e.IsCluster() {
		return e
	}
	return e.nodes[int(e.nodes[0].fixtures.Add(1))%len(e.nodes)]
}
