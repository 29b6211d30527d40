//go:build unix

package main_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/servers"
)

const (
	rulesFile     = "../../deploy/prometheus/txlock.rules.yml"
	dashboardFile = "../../deploy/grafana/txlock.json"
)

// postgresEngine is the first PostgreSQL.
func postgresEngine() *engine {
	for _, e := range engines {
		if e.postgres {
			return e
		}
	}
	panic("bug: no PostgreSQL")
}

// promtool runs Prometheus' tool on some input.
func promtool(t *testing.T, input string, arguments ...string) {
	t.Helper()
	tool, err := servers.Promtool(background)
	require.NoError(t, err)
	c := tool.Command(background, arguments...)
	c.Stdin = strings.NewReader(input)
	output, err := c.CombinedOutput()
	require.NoError(t, err, "%s\n%s", output, input)
}

func TestRules(t *testing.T) {
	t.Parallel()
	promtool(t, "", "check", "rules", rulesFile)
	promtool(t, "", "test", "rules", strings.Replace(rulesFile, ".rules.", ".rules.test.", 1))
}

// Every metric of the rules and of the dashboard that is the page's is there, and has labels only
// for the keys that were asked for. Those of processes are looked for in the module otel.
func TestMetrics(t *testing.T) { each(t, metrics) }

func metrics(t *testing.T, e *engine) {
	e.oneAtATime(t)
	f := installed(t, e)
	holder := f.start(t, "run", "sku:42", "--", "sh", "-c", "echo held; cat")
	require.Equal(t, "held", holder.line(t))
	other := f.start(t, "run", "other", "--", "sh", "-c", "echo held; cat")
	require.Equal(t, "held", other.line(t))
	waiter := f.start(t, "run", "sku:42", "--", "true")
	f.waiters(t, 1)
	page := f.start(t, "serve", "--listen", "127.0.0.1:0")
	address, found := strings.CutPrefix(page.line(t), "serving on ")
	require.True(t, found)
	answer, err := http.Get(address + "metrics?key=sku:42&key=%22free%22")
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	text, series := string(body), map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), " "); found && !strings.HasPrefix(line, "#") {
			series[name] = value
		}
	}
	of := `{table="txlock_slots",kind="lock"}`
	require.Equal(t, "1", series["txlock_status_up"], text)
	held := map[bool]string{true: "1", false: "2"}[e.Kind == servers.MariaDB] // it lists what is awaited
	require.Equal(t, held, series["txlock_status_held"+of], text)
	require.Equal(t, "1", series["txlock_status_waiting_sessions"+of], text)
	require.NotEqual(t, "0", series["txlock_status_oldest_wait_seconds"+of], text)
	require.Equal(t, "0", series[`txlock_status_key_held{key="\"free\""}`], text)
	require.NotContains(t, text, "other")
	if e.Kind != servers.MariaDB { // which shows no key and no time of a holder that it does not name
		require.Equal(t, "1", series[`txlock_status_key_held{key="sku:42"}`], text)
		require.Equal(t, "1", series[`txlock_status_key_waiting_sessions{key="sku:42"}`], text)
		require.NotEqual(t, "0", series["txlock_status_oldest_hold_seconds"+of], text)
	}
	promtool(t, text, "check", "metrics")
	named := 0
	for _, file := range []string{rulesFile, dashboardFile} {
		used, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range regexp.MustCompile(`txlock_(status|doctor)_[a-z_]+`).FindAllString(string(used), -1) {
			require.Contains(t, "\n"+text, "\n# TYPE "+name+" gauge\n", file)
			named++
		}
	}
	require.Greater(t, named, 10)
	require.NoError(t, holder.stdin.Close())
	require.NoError(t, other.stdin.Close())
	require.Zero(t, waiter.wait(t))
}

// A holder that was stopped tells nobody. Prometheus, which asks beside it, has the alert, and
// loses it when the lock is free. It understands what the dashboard asks.
func TestAlertOfAStoppedHolder(t *testing.T) {
	t.Parallel()
	f := installed(t, postgresEngine())
	page := f.start(t, "serve", "--listen", "127.0.0.1:0")
	address, found := strings.CutPrefix(page.line(t), "serving on http://")
	require.True(t, found)
	rules, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	sooner := strings.NewReplacer("> 3600", "> 5", "for: 1m", "for: 1s").Replace(string(rules))
	require.NotEqual(t, string(rules), sooner)
	prometheus, err := servers.StartPrometheus(background, `
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yml]
scrape_configs:
  - job_name: txlock
    params: {key: ["sku:42"]}
    static_configs: [{targets: ["`+strings.TrimSuffix(address, "/")+`"]}]
`, sooner)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, prometheus.Stop()) })

	holder := f.start(t, "run", "--lease", "10m", "sku:42", "--", "sh", "-c", "echo held; cat")
	require.Equal(t, "held", holder.line(t))
	require.NoError(t, holder.Process.Signal(syscall.SIGSTOP))
	firing := func() bool {
		var alerts struct {
			Alerts []struct {
				Labels map[string]string
				State  string
			}
		}
		askPrometheus(t, prometheus, "alerts", nil, &alerts)
		for _, alert := range alerts.Alerts {
			if alert.Labels["alertname"] == "TxlockHeldTooLong" && alert.State == "firing" {
				require.Equal(t, "lock", alert.Labels["kind"])
				return true
			}
		}
		return false
	}
	eventually.True(t, "the alert", firing)
	require.NoError(t, holder.Process.Signal(syscall.SIGCONT))
	require.NoError(t, holder.stdin.Close())
	require.Zero(t, holder.wait(t))
	eventually.True(t, "no alert", func() bool { return !firing() })

	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	text, err := os.ReadFile(dashboardFile)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &dashboard))
	require.NotEmpty(t, dashboard.Panels)
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			query := strings.NewReplacer("$job", ".*", "$__rate_interval", "1m").Replace(target.Expr)
			askPrometheus(t, prometheus, "query", url.Values{"query": {query}}, nil)
		}
	}
}

// askPrometheus reads the data of an answer, which must be a success.
func askPrometheus(t *testing.T, prometheus *servers.Server, what string, query url.Values, data any) {
	t.Helper()
	answer, err := http.Get(prometheus.DSN + "/api/v1/" + what + "?" + query.Encode())
	require.NoError(t, err)
	defer answer.Body.Close()
	var outer struct {
		Status, Error string
		Data          json.RawMessage
	}
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&outer))
	require.Equal(t, "success", outer.Status, "%s: %s", query, outer.Error)
	if data != nil {
		require.NoError(t, json.Unmarshal(outer.Data, data))
	}
}
