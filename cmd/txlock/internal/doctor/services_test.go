package doctor_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/wire"
)

// The page and the doctor say the same.
func TestPageOfServices(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/managed.md")
	require.NoError(t, err)
	page := strings.Join(strings.Fields(string(text)), " ")
	for _, s := range doctor.Services() {
		_, of, found := strings.Cut(page, "- **"+s.Name+"** ("+s.Shown+"). ")
		require.True(t, found, s.Name)
		of, _, _ = strings.Cut(of, "- **")
		require.Regexp(t, `^.+ \*txlock there:\* .+ \*Connect by\* `+regexp.QuoteMeta(s.DSN)+`. \*Set:\* .+`, of)
	}
}

// A PostgreSQL plays each service by the settings, functions, roles and databases of that name.
func TestServices(t *testing.T) {
	t.Parallel()
	s := newSite(t, private(t, servers.Postgres(), "-c", "max_connections=30"))
	require.NotContains(t, s.checked(t), "service")
	calls := func(name, text string) string {
		return "CREATE FUNCTION " + name + "() RETURNS text LANGUAGE sql AS $$ select '" + text + "'::text $$"
	}
	has := func(setting string) []string {
		return []string{"ALTER DATABASE %s SET " + setting + " = 'on'", "ALTER DATABASE %s RESET " + setting}
	}
	catalog := func(change string) string { // in the catalog of this database
		return "DO $do$ BEGIN PERFORM set_config('allow_system_table_mods', 'on', true); " + change + "; END $do$"
	}
	says := func(version string) []string {
		return []string{
			catalog("ALTER FUNCTION pg_catalog.version() RENAME TO its_version"),
			catalog(calls("pg_catalog.version", version)),
		}
	}
	itself := []string{
		catalog("DROP FUNCTION pg_catalog.version()"),
		catalog("ALTER FUNCTION pg_catalog.its_version() RENAME TO version"),
	}
	for _, c := range []struct {
		name, sign  string
		plays, ends []string
	}{
		{
			"Aurora PostgreSQL", "function aurora_version",
			[]string{calls("aurora_version", "16.4.2"), "CREATE ROLE rds_superuser"},
			[]string{"DROP FUNCTION aurora_version"},
		},
		{"RDS for PostgreSQL", "role rds_superuser", nil, []string{"DROP ROLE rds_superuser"}},
		{"RDS for PostgreSQL", "setting rds.extensions", has("rds.extensions")[:1], has("rds.extensions")[1:]},
		{
			"AlloyDB", "setting alloydb.iam_authentication",
			has("alloydb.iam_authentication")[:1], has("alloydb.iam_authentication")[1:],
		},
		{
			"Cloud SQL", "database cloudsqladmin",
			[]string{"CREATE DATABASE cloudsqladmin"},
			[]string{"DROP DATABASE cloudsqladmin"},
		},
		{"Azure Database", "setting azure.extensions", has("azure.extensions")[:1], has("azure.extensions")[1:]},
		{
			"Supabase", "role supabase_admin",
			[]string{"CREATE ROLE supabase_admin"},
			[]string{"DROP ROLE supabase_admin"},
		},
		{"Neon", "setting neon.tenant_id", has("neon.tenant_id")[:1], has("neon.tenant_id")[1:]},
		{
			"YugabyteDB", "version -YB-",
			says("PostgreSQL 15.12-YB-2025.1.0.0-b168 on x86_64"), itself,
		},
		{
			"CockroachDB", "version CockroachDB",
			says("CockroachDB CCL v25.2.1 (x86_64-pc-linux-gnu)"), itself,
		},
	} {
		s.execute(t, c.plays...)
		finding := find(t, s.examine(t), "service")
		require.Contains(t, finding.Found, "it is "+c.name)
		require.Contains(t, finding.Found, "("+c.sign+")")
		require.Contains(t, finding.Found, "https://")
		require.Contains(t, finding.Why, "managed.md")
		require.Equal(t, doctor.Advice, finding.Fix.Kind)
		s.execute(t, c.ends...)
	}
	require.NotContains(t, s.checked(t), "service")

	// RDS Proxy stands in front of RDS.
	proxy, err := wire.Listen(s.host(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	proxy.HideKeys()
	s.execute(t, "CREATE ROLE rds_superuser")
	findings, err := s.look(background, strings.Replace(s.dsn, s.host(t), proxy.Addr(), 1), s.table)
	require.NoError(t, err)
	var found []string
	for _, finding := range findings {
		if finding.Check == "service" {
			found = append(found, finding.Found)
		}
	}
	require.Len(t, found, 2)
	require.Contains(t, found[0], "it is RDS for PostgreSQL")
	require.Contains(t, found[1], "it is RDS Proxy (no key to cancel statements)")
}

// A MariaDB that calls itself TiDB, or Vitess, plays it, and is refused like it.
func TestServiceThatIsRefused(t *testing.T) {
	t.Parallel()
	for version, found := range map[string]string{
		"8.0.11-TiDB-v8.5.6": "it is TiDB (version TiDB)",
		"8.4.6-Vitess":       "it is PlanetScale for Vitess (version vitess)",
	} {
		e := private(t, servers.MariaDB, "--version="+version)
		findings, err := e.look(background, e.DSN, "txlock_slots")
		require.NoError(t, err)
		finding := find(t, findings, "service")
		require.Equal(t, doctor.Failure, finding.Severity)
		require.Contains(t, finding.Found, found)
		require.Contains(t, finding.Why, "ErrUnsafeEngine")
	}
}

// checked returns the names of the checks that have found anything.
func (s *site) checked(t *testing.T) (names []string) {
	t.Helper()
	for _, finding := range s.examine(t) {
		names = append(names, finding.Check)
	}
	return names
}
