package doctor

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/must"
)

// These tests judge what no test server can be: other versions, clusters, variables that are read
// only at the start. All else is tested on servers.

// all are the findings of a check.
func all(t *testing.T, look func(context.Context, report) (string, error)) []Finding {
	t.Helper()
	return must.Get(run(t.Context(), []check{{"it", look}}, func(error) bool { return true }))(t)
}

func severityOf(t *testing.T, findings []Finding, check string) Severity {
	t.Helper()
	for _, finding := range findings {
		if finding.Check == check || finding.Check == "" {
			return finding.Severity
		}
	}
	require.Fail(t, "no finding "+check)
	return ""
}

func TestMySQLVersions(t *testing.T) {
	for version, want := range map[string]Severity{
		"8.0.1": OK, "8.0.0": Failure, "5.7.44": Failure, "8.4.2": OK, "9.7.4-2": OK, "9.8.0": Note,
		"10.5.9-MariaDB": Failure, "10.6.0-MariaDB": OK, "10.11.18-MariaDB-0+deb12u1": OK,
		"11.8.6-MariaDB-0+deb13u1 from Debian": OK, "12.0.2-MariaDB-ubu2404": Note,
	} {
		m := mysqlServer{global: map[string]string{"version": version}}
		m.identify()
		findings := all(t, m.ofVersion)
		require.Equal(t, want, findings[0].Severity, version)
		require.Contains(t, findings[0].Found, version)
	}
}

func TestPostgresVersions(t *testing.T) {
	for _, c := range []struct {
		text   string
		number int
		want   Severity
	}{
		{"PostgreSQL 13.9 (Debian)", 130009, Failure},
		{"PostgreSQL 14.0", 140000, OK},
		{"PostgreSQL 18.6", 180006, OK},
		{"PostgreSQL 19beta1", 190000, Note},
		{"CockroachDB CCL v23.1.0", 140000, Note},
	} {
		findings := all(t, func(_ context.Context, r report) (string, error) {
			return r.postgresVersion(c.text+" on x86_64-pc-linux-gnu, compiled by gcc", c.number), nil
		})
		require.Equal(t, c.want, findings[0].Severity, c.text)
	}
}

func TestClusters(t *testing.T) {
	for _, c := range []struct {
		name      string
		variables map[string]string
		want      Severity
		found     string
	}{
		{"none", map[string]string{"wsrep_on": "OFF"}, OK, "no cluster"},
		{"Galera", map[string]string{
			"wsrep_on": "ON", "wsrep_cluster_name": "shop", "version": "10.11.18-MariaDB", "wsrep_slave_threads": "1",
		}, Note, `Galera cluster "shop"`},
		{"Galera with parallel appliers", map[string]string{
			"wsrep_on": "ON", "wsrep_cluster_name": "shop", "version": "10.11.18-MariaDB", "wsrep_slave_threads": "4",
		}, Warning, `wsrep_slave_threads = 4: this is a node of Galera cluster "shop"`},
		{"Galera of MySQL", map[string]string{"wsrep_on": "ON", "version": "8.0.42-33"}, Failure, "Galera"},
		{"group, one primary", map[string]string{
			"group_replication_single_primary_mode": "ON",
			"group_replication_group_name":          "g",
		}, Note, "group g"},
		{"group, many primaries", map[string]string{
			"group_replication_single_primary_mode": "OFF",
			"group_replication_group_name":          "g",
		}, Failure, "multi-primary"},
		{"plugin only", map[string]string{
			"group_replication_single_primary_mode": "OFF",
			"group_replication_group_name":          "",
		}, OK, "no cluster"},
	} {
		m := mysqlServer{config: &mysql.Config{}, global: c.variables, session: c.variables}
		findings := all(t, m.cluster)
		require.Equal(t, c.want, findings[0].Severity, c.name)
		require.Contains(t, findings[0].Found, c.found)
	}
	group := mysqlServer{config: &mysql.Config{}, global: map[string]string{
		"group_replication_single_primary_mode":          "ON",
		"group_replication_group_name":                   "g",
		"group_replication_unreachable_majority_timeout": "0",
		"group_replication_consistency":                  "EVENTUAL",
	}}
	findings := all(t, group.cluster)
	require.Len(t, findings, 3)
	for _, warning := range findings[1:] {
		require.Equal(t, Warning, warning.Severity)
		require.NotEmpty(t, warning.Fix)
	}
}

func TestVariablesOfTheStart(t *testing.T) {
	variables := map[string]string{
		"wait_timeout": "100", "innodb_rollback_on_timeout": "OFF",
		"innodb_read_only": "OFF",
	}
	m := mysqlServer{config: mysql.NewConfig(), global: variables, session: variables}
	findings := all(t, m.timeouts)
	for _, finding := range findings {
		require.NotEqual(t, "innodb-rollback-on-timeout", finding.Check)
	}
	variables["innodb_rollback_on_timeout"] = "ON"
	findings = all(t, m.timeouts)
	require.Equal(t, Note, severityOf(t, findings, "innodb-rollback-on-timeout"))

	findings = all(t, m.readOnly)
	require.Equal(t, OK, findings[0].Severity)
	variables["innodb_read_only"] = "ON"
	findings = all(t, m.readOnly)
	require.Equal(t, Failure, findings[0].Severity)
	require.Contains(t, findings[0].Fix.Text, "[mysqld]\ninnodb_read_only = OFF")
}

func TestOlderPgBouncer(t *testing.T) {
	require.True(t, bouncer{config: map[string]string{"max_prepared_statements": "200"}}.tracksStatements())
	require.False(t, bouncer{config: map[string]string{}}.tracksStatements(), "before 1.21")
}

// An engine that does not lock is a failure that says so. Any other error means that locking could
// not be proved.
func TestProofs(t *testing.T) {
	proof := func(err error, because string) Finding {
		return all(t, func(_ context.Context, r report) (string, error) {
			r.proof(err, because)
			return "", nil
		})[0]
	}
	unsafe := proof(fmt.Errorf("txlock: check: %w: two sessions hold slot 7 at once", txlock.ErrUnsafeEngine), "")
	require.Equal(t, Failure, unsafe.Severity)
	require.Contains(t, unsafe.Found, "slot 7")
	require.NotEmpty(t, unsafe.Fix)
	require.Equal(t, Warning, proof(errors.New("odd"), "").Severity)
	require.Contains(t, proof(errors.New("odd"), "").Found, "could not be proved: odd")
	require.Equal(t, Note, proof(errors.New("denied"), mayNotLock).Severity)
}

// A check that failed is a warning if locks depend on it.
func TestUnseen(t *testing.T) {
	fails := func(context.Context, report) (string, error) { return "", errors.New("odd") }
	for name, want := range map[string]Severity{
		"table": Warning, "privileges": Warning, "read-only": Warning,
		"cluster": Warning, "status": Note,
	} {
		findings := must.Get(run(t.Context(), []check{{name, fails}}, func(error) bool { return false }))(t)
		require.Len(t, findings, 1)
		require.Equal(t, want, findings[0].Severity, name)
		require.Equal(t, name, findings[0].Check)
		require.Contains(t, findings[0].Found, "could not be looked at: odd")
	}
}

func FuzzParts(f *testing.F) {
	f.Add("shop", "txlock_slots")
	f.Add("", "a`b")
	f.Add("`", "`.`")
	f.Fuzz(func(t *testing.T, schema, name string) {
		quoted := quoteName(name)
		if schema != "" {
			quoted = quoteName(schema) + "." + quoted
		}
		gotSchema, gotName := parts(quoted)
		require.Equal(t, [2]string{schema, name}, [2]string{gotSchema, gotName})
	})
}
