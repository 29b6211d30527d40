package doctor

import (
	"context"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Service is a managed service, or a server that speaks the protocol of PostgreSQL or MySQL without
// being one. docs/managed.md has each. A test holds that page against these.
type Service struct {
	Name  string
	Says  string // what its documentation says
	Pages string // addresses of that
	Here  string // what txlock does there
	DSN   string // how to connect
	Set   string // what to set
	Shown string // tested, played by a proxy, or read
	worst Severity
	signs []string // any of them tells that it is this service
}

// Services are those that the doctor recognises. Where the signs of several are there, the first
// one is meant: Aurora has those of RDS as well.
func Services() []Service { return services }

// recognised is the finding for the first of the services that has a sign in found, or nothing.
func recognised(candidates []Service, found map[string]bool) []Finding {
	for _, s := range candidates {
		for _, sign := range s.signs {
			if found[sign] {
				return one(Finding{
					Severity: s.worst, Found: "it is " + s.Name + " (" + sign + "). " + s.Says + " (" + s.Pages + ")",
					Why: s.Here + " Shown: " + s.Shown + ".", Fix: advice("connect by " + s.DSN + ". " + s.Set),
				})
			}
		}
	}
	return nil
}

// proxied are the services that stand in front of a server.
func proxied(proxy bool) (candidates []Service) {
	for _, s := range services {
		if (s.Name == rdsProxy) == proxy {
			candidates = append(candidates, s)
		}
	}
	return candidates
}

// signOfHost tells services by the name of their host, where the server itself says nothing.
func signOfHost(host string) string {
	for _, suffix := range []string{".mysql.database.azure.com", ".connect.psdb.cloud"} {
		if strings.HasSuffix(host, suffix) {
			return "host *" + suffix
		}
	}
	if strings.HasSuffix(host, ".rds.amazonaws.com") && strings.Contains(host, ".proxy-") {
		return "host *.proxy-*.rds.amazonaws.com"
	}
	return ""
}

// signsSQL returns those of some signs that a server has which speaks PostgreSQL.
const signsSQL = `select sign from unnest($1::text[]) sign where sign in (
	select concat('function ', proname) from pg_proc union all select concat('role ', rolname) from pg_roles
	union all select concat('database ', datname) from pg_database)
or starts_with(sign, 'setting ') and current_setting(substr(sign, length('setting ') + 1), true) is not null`

func (p *postgresServer) lookAtService(ctx context.Context) ([]Finding, error) {
	found := map[string]bool{signOfHost(p.config.ConnConfig.Host): true}
	var text string
	if err := p.conn.QueryRow(ctx, "SELECT version()").Scan(&text); err != nil {
		return nil, err
	}
	for _, part := range []string{"CockroachDB", "-YB-"} {
		found["version "+part] = strings.Contains(text, part)
	}
	var all []string
	for _, s := range services {
		all = append(all, s.signs...)
	}
	rows, _ := p.conn.Query(ctx, signsSQL, all)
	signs, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, sign := range signs {
		found[sign] = true
	}
	ofAWS := found["role rds_superuser"] || found["setting rds.extensions"] || found["function aurora_version"]
	found["no key to cancel statements"] = ofAWS && p.conn.PgConn().PID() == 0
	return append(recognised(proxied(false), found), recognised(proxied(true), found)...), err
}

func (m *mysqlServer) lookAtService(context.Context) ([]Finding, error) {
	host, _, _ := net.SplitHostPort(m.config.Addr)
	found := map[string]bool{signOfHost(host): true}
	_, found["variable aurora_version"] = m.global["aurora_version"]
	found["basedir mysql_aurora"] = strings.Contains(m.global["basedir"], "mysql_aurora")
	found["basedir /rdsdbbin"] = strings.HasPrefix(m.global["basedir"], "/rdsdbbin")
	version := strings.ToLower(m.global["version"] + " " + m.global["version_comment"])
	for _, part := range []string{"-google", "vitess", "planetscale", "TiDB"} {
		found["version "+part] = strings.Contains(version, strings.ToLower(part))
	}
	return append(recognised(proxied(false), found), recognised(proxied(true), found)...), nil
}

const (
	rdsProxy = "RDS Proxy"

	read   = "read"
	played = "played by a proxy"
	aws    = "https://docs.aws.amazon.com/AmazonRDS/latest/"
)

var services = []Service{
	{
		Name:  "Aurora PostgreSQL",
		signs: []string{"function aurora_version"}, worst: Note, Shown: "played by settings",
		Says: "Unlogged tables keep their rows over a crash and a failover. A minor upgrade keeps client " +
			"connections where it can.",
		Pages: aws + "AuroraUserGuide/aurora-postgresql-unlogged-tables.html, " +
			"https://aws.amazon.com/blogs/database/perform-amazon-aurora-postgresql-minor-version-upgrades-with-" +
			"minimal-downtime-via-minor-version-update-improvements",
		Here: "Tokens increase all the same: they know the run of the server by when it was started and when its " +
			"statistics began, played with logged tables and crashes. On PostgreSQL 14 a crash of one process alone " +
			"is not seen by that.",
		DSN: "postgres://app@NAME.cluster-ID.REGION.rds.amazonaws.com/shop, the endpoint of the cluster",
		Set: "Nothing. The reader endpoint is a standby, and is refused.",
	},
	{
		Name:  "Aurora MySQL",
		signs: []string{"variable aurora_version", "basedir mysql_aurora"}, worst: Note, Shown: played,
		Says: "Patching without downtime cancels open transactions and keeps their connections. It closes " +
			"connections that have temporary tables, user locks or table locks. In-memory auto_increment " +
			"values are set anew.",
		Pages: aws + "AuroraUserGuide/AuroraMySQL.Updates.ZDP.html",
		Here: "A patch is a loss: the next heartbeat finds that the transaction is gone, or gets error 1105, and " +
			"tells the holder. A proxy plays both.",
		DSN: "app@tcp(NAME.cluster-ID.REGION.rds.amazonaws.com)/shop, the endpoint of the cluster",
		Set: "Nothing. A reader is refused: its innodb_read_only is on.",
	},
	{
		Name:  "RDS for PostgreSQL, MySQL, MariaDB",
		signs: []string{"setting rds.extensions", "role rds_superuser", "basedir /rdsdbbin"}, worst: Note, Shown: read,
		Says: "They are the databases themselves. A failover to the standby of another zone takes 60 to 120 " +
			"seconds as a rule.",
		Pages: aws + "UserGuide/Concepts.MultiAZ.Failover.html",
		Here:  "As on a server of your own of the same version.",
		DSN:   "the endpoint of the instance, not that of a read replica",
		Set:   "Nothing that the other findings do not name. Parameters are set in a parameter group.",
	},
	{
		Name:  rdsProxy,
		signs: []string{"no key to cancel statements", "host *.proxy-*.rds.amazonaws.com"},
		worst: Warning, Shown: played,
		Says: "For PostgreSQL it passes on no CancelRequest. Settings, prepared statements, advisory locks, " +
			"GET_LOCK and nextval pin a client to its session. Connections of clients outlive a failover. One " +
			"that is idle for 30 minutes is closed, by default.",
		Pages: aws + "UserGuide/rds-proxy.html, " + aws + "UserGuide/rds-proxy-pinning.html, " +
			aws + "UserGuide/rds-proxy.examples.html",
		Here: "A cancelled wait is ended by pg_cancel_backend from a second connection of the pool: played. " +
			"A failover behind the proxy is a loss by the next heartbeat. " +
			"Nearly each session of txlock's is pinned, so the proxy saves no connections for it.",
		DSN: "the endpoint of the database itself, past the proxy",
		Set: "If it has to be the proxy: an IdleClientTimeout above the time that a connection of the pool " +
			"may be idle, and no options=-c in the connection string.",
	},
	{
		Name: "AlloyDB",
		signs: []string{
			"setting alloydb.iam_authentication", "setting alloydb.enable_pgaudit", "role alloydbsuperuser",
			"database alloydbadmin",
		}, worst: Note, Shown: read,
		Says: "Managed connection pooling, which is off by default, has a port of its own and a mode by " +
			"transaction and one by session. Its Auth Proxy and connectors do not go through it.",
		Pages: "https://cloud.google.com/alloydb/docs/configure-managed-connection-pooling",
		Here: "Without the pooler as on PostgreSQL. Through it, untested; whether it keeps prepared statements " +
			"was not found.",
		DSN: "postgres://app@PRIMARY/shop, port 5432",
		Set: "Leave the pooler's port to others, or use its session mode.",
	},
	{
		Name: "Cloud SQL",
		signs: []string{
			"setting cloudsql.iam_authentication", "role cloudsqlsuperuser", "database cloudsqladmin",
			"version -google",
		}, worst: Note, Shown: read,
		Says: "Managed Connection Pooling (PostgreSQL, Enterprise Plus) is a group of poolers in front of the " +
			"server. For connections that last long, a direct one is advised.",
		Pages: "https://cloud.google.com/sql/docs/postgres/managed-connection-pooling",
		Here: "Without the pooler as on a server of your own of the same version, also through the Auth " +
			"Proxy, which forwards bytes. Through the pooler, untested; whether it keeps prepared statements " +
			"was not found.",
		DSN: "postgres://app@INSTANCE/shop or app@tcp(INSTANCE)/shop, or the address where the Auth Proxy " +
			"listens",
		Set: "Nothing. A held lock is a connection that lasts long: connect directly.",
	},
	{
		Name: "Azure Database for PostgreSQL, for MySQL",
		signs: []string{
			"setting azure.extensions", "role azure_pg_admin", "role azure_superuser",
			"host *.mysql.database.azure.com",
		}, worst: Note, Shown: read,
		Says: "The flexible server for PostgreSQL has a PgBouncer of its own on port 6432, off by default, " +
			"which is set by parameters that begin with pgbouncer. Its max_prepared_statements is 0 by " +
			"default.",
		Pages: "https://learn.microsoft.com/en-us/azure/postgresql/flexible-server/concepts-pgbouncer, " +
			"https://learn.microsoft.com/en-us/azure/postgresql/server-parameters/param-pgbouncer",
		Here: "On port 5432 as on PostgreSQL; on 6432 as through PgBouncer. By what the server for MySQL can " +
			"be told was not found, so it is told by its host's name.",
		DSN: "postgres://app@NAME.postgres.database.azure.com/shop, " +
			"app@tcp(NAME.mysql.database.azure.com)/shop",
		Set: "On 6432: pgbouncer.max_prepared_statements above 0; docs/poolers.md says what else PgBouncer needs.",
	},
	{
		Name:  "Supabase",
		signs: []string{"role supabase_admin"}, worst: Warning, Shown: read,
		Says: "Statements end after 2 minutes, of the role postgres too. Its pooler Supavisor has port 6543 " +
			"for the mode by transaction, without prepared statements and SET, and 5432 for that by session.",
		Pages: "https://supabase.com/docs/guides/database/postgres/timeouts, " +
			"https://supabase.com/docs/guides/database/connecting-to-postgres",
		Here: "A wait is one statement and ends with that limit, as an error. In transaction mode, untested.",
		DSN: "postgres://app@db.PROJECT.supabase.co:5432/postgres (IPv6), or session mode on port 5432 of the " +
			"pooler",
		Set: "ALTER ROLE app SET statement_timeout = 0 for the role that locks, or bound its waits by Within.",
	},
	{
		Name:  "Neon",
		signs: []string{"setting neon.tenant_id", "setting neon.timeline_id", "role neon_superuser"},
		worst: Note, Shown: read,
		Says: "A compute that has nothing to do is suspended; a session that is idle in its transaction " +
			"counts as work. Unlogged tables are empty after each restart and suspension. fsync is off, " +
			"because the storage keeps the log. Hosts with -pooler are a PgBouncer in transaction mode.",
		Pages: "https://neon.com/docs/reference/compatibility, " +
			"https://neon.com/docs/introduction/compute-lifecycle, " +
			"https://neon.com/faqs/postgres-services-built-in-connection-pooling",
		Here: "A held Lock, and a leader, keep the compute awake, and so cost what it costs. The finding " +
			"about fsync does not apply.",
		DSN: "postgres://app@ENDPOINT.REGION.aws.neon.tech/shop, without -pooler",
		Set: "Nothing.",
	},
	{
		Name: "PlanetScale for Vitess",
		signs: []string{
			"version vitess", "version planetscale", "host *.connect.psdb.cloud",
		}, worst: Failure, Shown: "read, and the refusal played by settings",
		Says: "A transaction ends after 20 seconds (Vitess itself: 30), a SELECT after 900, a connection after a " +
			"day. Clients share the sessions of the servers behind the proxy, which ignores wait_timeout.",
		Pages: "https://planetscale.com/docs/reference/planetscale-system-limits",
		Here: "A lock would have no lease and be lost after 20 seconds. The KILL QUERY that ends a wait may " +
			"hit another client. So whatever is called first is ErrUnsafeEngine, before any lock.",
		DSN: "another server",
		Set: "Keep the lock table on MySQL, MariaDB or PostgreSQL.",
	},
	{
		Name:  "TiDB",
		signs: []string{"version TiDB"}, worst: Failure, Shown: "read, and the refusal played by settings",
		Says: "Pessimistic locks are kept in memory, and lost when a store fails; a lock was lost after 12 s in " +
			"8.5.4. Holds end after an hour, and COMMIT goes on. FOR UPDATE with SKIP LOCKED is taken without an " +
			"error and locks nothing.",
		Pages: "https://docs.pingcap.com/tidb/stable/pessimistic-transaction, " +
			"https://github.com/pingcap/tidb/issues/66571, https://github.com/pingcap/tidb/issues/69720",
		Here: "A holder that has lost its lock would commit, and tries would exclude nobody. So whatever is called " +
			"first is ErrUnsafeEngine, before any lock.",
		DSN: "another server",
		Set: "Keep the lock table on MySQL, MariaDB or PostgreSQL.",
	},
	{
		Name:  "CockroachDB",
		signs: []string{"version CockroachDB"}, worst: Failure, Shown: read,
		Says: "Under SERIALIZABLE, locks of FOR UPDATE are best effort and not to be relied upon: they are " +
			"lost when a range moves. Advisory locks of a session do nothing; those of a transaction were " +
			"added in 2026.",
		Pages: "https://www.cockroachlabs.com/docs/stable/select-for-update, " +
			"https://github.com/cockroachdb/cockroach/pull/168353, " +
			"https://github.com/cockroachdb/cockroach/issues/13546",
		Here: "The queue lock is an advisory lock of the transaction: a lock is an error before 26.2. Later versions " +
			"are not refused, and nobody has tried. A renewal rests on an advisory lock of the session.",
		DSN: "another server",
		Set: "Keep the lock table on PostgreSQL.",
	},
	{
		Name:  "YugabyteDB",
		signs: []string{"version -YB-"}, worst: Failure, Shown: read,
		Says: "READ COMMITTED was off by default in 2024, for compatibility " +
			"(yb_enable_read_committed_isolation). Without it a conflict ends one of the two transactions. " +
			"Row locks and advisory locks are there.",
		Pages: "https://docs.yugabyte.com/stable/explore/transactions/explicit-locking/, " +
			"https://docs.yugabyte.com/stable/architecture/transactions/concurrency-control/, " +
			"https://dev.to/yugabyte/pessimistic-locking-read-committed-and-all-isolation-levels-3n31",
		Here: "Nobody has tried. In which order its waiters are served, and whether the lease of a silent " +
			"session is kept, was not found.",
		DSN: "another server",
		Set: "Keep the lock table on PostgreSQL.",
	},
}
