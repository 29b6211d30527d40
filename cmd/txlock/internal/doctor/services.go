package doctor

import (
	"context"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Service is a managed service, or a server that speaks the protocol of PostgreSQL or MySQL without
// being one. docs/managed.md says what its documentation says, what txlock does there, and what to
// set. A test holds that page against these.
type Service struct {
	Name  string
	worst Severity
	Shown string   // tested, played by a proxy, or read
	signs []string // any of them tells that it is this service
	DSN   string   // how to connect
	Pages string   // addresses of its documentation
}

// Services are those that the doctor recognises. Where the signs of several are there, the first
// one is meant: Aurora has those of RDS as well.
func Services() []Service { return services }

// recognised reports a service whose signs were found, and a service that stands in front of it.
func (r report) recognised(found map[string]bool) {
	for _, inFront := range []bool{false, true} {
		is := slices.IndexFunc(services, func(s Service) bool {
			return (s.Name == rdsProxy) == inFront &&
				slices.ContainsFunc(s.signs, func(sign string) bool { return found[sign] })
		})
		if is < 0 {
			continue
		}
		s := services[is]
		sign := s.signs[slices.IndexFunc(s.signs, func(sign string) bool { return found[sign] })]
		why := "what that means for locks: https://github.com/txlock/txlock/blob/main/docs/managed.md (" + s.Shown + ")"
		if s.worst == Failure {
			why = "it does not lock as PostgreSQL and MySQL do, and may be refused with ErrUnsafeEngine; " + why
		}
		r.add(s.worst, "it is "+s.Name+" ("+sign+"): "+s.Pages, why, advice("connect by "+s.DSN))
	}
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

func (p *postgresServer) service(ctx context.Context, r report) (fine string, err error) {
	found := map[string]bool{signOfHost(p.config.ConnConfig.Host): true}
	var text string
	if err := p.conn.QueryRow(ctx, "SELECT version()").Scan(&text); err != nil {
		return "", err
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
	r.recognised(found)
	return "", err
}

func (m *mysqlServer) service(_ context.Context, r report) (fine string, err error) {
	host, _, _ := net.SplitHostPort(m.config.Addr)
	found := map[string]bool{signOfHost(host): true}
	_, found["variable aurora_version"] = m.global["aurora_version"]
	found["basedir mysql_aurora"] = strings.Contains(m.global["basedir"], "mysql_aurora")
	found["basedir /rdsdbbin"] = strings.HasPrefix(m.global["basedir"], "/rdsdbbin")
	version := strings.ToLower(m.global["version"] + " " + m.global["version_comment"])
	for _, part := range []string{"-google", "vitess", "planetscale", "TiDB"} {
		found["version "+part] = strings.Contains(version, strings.ToLower(part))
	}
	r.recognised(found)
	return "", nil
}

const (
	rdsProxy = "RDS Proxy"

	read      = "read"
	refusal   = "read, and the refusal played by settings"
	played    = "played by a proxy"
	aws       = "https://docs.aws.amazon.com/AmazonRDS/latest/"
	another   = "another server"
	cockroach = "https://github.com/cockroachdb/cockroach/"
)

var services = []Service{
	{
		"Aurora PostgreSQL", Note, "played by settings",
		[]string{"function aurora_version"},
		"postgres://app@NAME.cluster-ID.REGION.rds.amazonaws.com/shop, the endpoint of the cluster",
		aws + "AuroraUserGuide/aurora-postgresql-unlogged-tables.html, https://aws.amazon.com/blogs/database/" +
			"perform-amazon-aurora-postgresql-minor-version-upgrades-" +
			"with-minimal-downtime-via-minor-version-update-improvements",
	},
	{
		"Aurora MySQL", Note, played,
		[]string{"variable aurora_version", "basedir mysql_aurora"},
		"app@tcp(NAME.cluster-ID.REGION.rds.amazonaws.com)/shop, the endpoint of the cluster",
		aws + "AuroraUserGuide/AuroraMySQL.Updates.ZDP.html",
	},
	{
		"RDS for PostgreSQL, MySQL, MariaDB", Note, read,
		[]string{"setting rds.extensions", "role rds_superuser", "basedir /rdsdbbin"},
		"the endpoint of the instance, not that of a read replica", aws + "UserGuide/Concepts.MultiAZ.Failover.html",
	},
	{
		rdsProxy, Warning, played,
		[]string{"no key to cancel statements", "host *.proxy-*.rds.amazonaws.com"},
		"the endpoint of the database itself, past the proxy", aws + "UserGuide/rds-proxy.html, " + aws +
			"UserGuide/rds-proxy-pinning.html, " + aws + "UserGuide/rds-proxy.examples.html",
	},
	{
		"AlloyDB", Note, read,
		[]string{
			"setting alloydb.iam_authentication", "setting alloydb.enable_pgaudit", "role alloydbsuperuser",
			"database alloydbadmin",
		},
		"postgres://app@PRIMARY/shop, port 5432",
		"https://cloud.google.com/alloydb/docs/configure-managed-connection-pooling",
	},
	{
		"Cloud SQL", Note, read,
		[]string{
			"setting cloudsql.iam_authentication", "role cloudsqlsuperuser", "database cloudsqladmin", "version " +
				"-google",
		},
		"postgres://app@INSTANCE/shop or app@tcp(INSTANCE)/shop, or the address where the Auth Proxy listens",
		"https://cloud.google.com/sql/docs/postgres/managed-connection-pooling",
	},
	{
		"Azure Database for PostgreSQL, for MySQL", Note, read,
		[]string{
			"setting azure.extensions", "role azure_pg_admin", "role azure_superuser", "host " +
				"*.mysql.database.azure.com",
		},
		"postgres://app@NAME.postgres.database.azure.com/shop, app@tcp(NAME.mysql.database.azure.com)/shop",
		"https://learn.microsoft.com/en-us/azure/postgresql/flexible-server/concepts-pgbouncer, " +
			"https://learn.microsoft.com/en-us/azure/postgresql/server-parameters/param-pgbouncer",
	},
	{
		"Supabase", Warning, read,
		[]string{"role supabase_admin"},
		"postgres://app@db.PROJECT.supabase.co:5432/postgres (IPv6), or session mode on port 5432 of the pooler",
		"https://supabase.com/docs/guides/database/postgres/timeouts, " +
			"https://supabase.com/docs/guides/database/connecting-to-postgres",
	},
	{
		"Neon", Note, read,
		[]string{"setting neon.tenant_id", "setting neon.timeline_id", "role neon_superuser"},
		"postgres://app@ENDPOINT.REGION.aws.neon.tech/shop, without -pooler",
		"https://neon.com/docs/reference/compatibility, https://neon.com/docs/introduction/compute-lifecycle, " +
			"https://neon.com/faqs/postgres-services-built-in-connection-pooling",
	},
	{
		"PlanetScale for Vitess", Failure, refusal,
		[]string{"version vitess", "version planetscale", "host *.connect.psdb.cloud"},
		another,
		"https://planetscale.com/docs/reference/planetscale-system-limits",
	},
	{
		"TiDB", Failure, refusal,
		[]string{"version TiDB"},
		another,
		"https://docs.pingcap.com/tidb/stable/pessimistic-transaction, " +
			"https://github.com/pingcap/tidb/issues/66571, https://github.com/pingcap/tidb/issues/69720",
	},
	{
		"CockroachDB", Failure, read,
		[]string{"version CockroachDB"},
		another,
		"https://www.cockroachlabs.com/docs/stable/select-for-update, " + cockroach + "pull/168353, " +
			cockroach + "issues/13546",
	},
	{
		"YugabyteDB", Failure, read,
		[]string{"version -YB-"},
		another,
		"https://docs.yugabyte.com/stable/explore/transactions/explicit-locking/, " +
			"https://docs.yugabyte.com/stable/architecture/transactions/concurrency-control/, " +
			"https://dev.to/yugabyte/pessimistic-locking-read-committed-and-all-isolation-levels-3n31",
	},
}
