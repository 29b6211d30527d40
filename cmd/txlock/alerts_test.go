//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
)

const (
	rulesFile     = "../../deploy/prometheus/txlock.rules.yml"
	dashboardFile = "../../deploy/grafana/txlock.json"
)

// promtool runs Prometheus' tool on some input.
func promtool(t *testing.T, input string, arguments ...string) {
	t.Helper()
	tool := must.Get(servers.Promtool(background))(t)
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

// Prometheus understands what the dashboard asks.
func TestDashboard(t *testing.T) {
	t.Parallel()
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	require.NoError(t, json.Unmarshal(must.Get(os.ReadFile(dashboardFile))(t), &dashboard))
	require.NotEmpty(t, dashboard.Panels)
	rules := "groups:\n- name: dashboard\n  rules:\n"
	for i, panel := range dashboard.Panels {
		for j, target := range panel.Targets {
			query := strings.NewReplacer("$job", ".*", "$__rate_interval", "1m").Replace(target.Expr)
			rules += fmt.Sprintf("  - {record: panel_%d_%d, expr: %q}\n", i, j, query)
		}
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	require.NoError(t, os.WriteFile(file, []byte(rules), 0o644))
	promtool(t, "", "check", "rules", file)
}

// Every metric of the rules and of the dashboard that is the page's is there, and has labels only
// for the keys that were asked for. Those of processes are looked for in the module otel.
func TestMetrics(t *testing.T) { each(t, metrics) }

func metrics(t *testing.T, e *engine) {
	e.oneAtATime(t)
	f := installed(t, e)
	holder, other := f.play(t, "patient", "sku:42"), f.play(t, "patient", "other")
	waiter := f.start(t, "run", "sku:42", "--", "true")
	f.waiters(t, 1)
	_, address := f.serve(t)
	answer := must.Get(http.Get(address + "metrics?key=sku:42&key=%22free%22"))(t)
	defer answer.Body.Close()
	body := must.Get(io.ReadAll(answer.Body))(t)
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
		used := must.Get(os.ReadFile(file))(t)
		for _, name := range regexp.MustCompile(`txlock_(status|doctor)_[a-z_]+`).FindAllString(string(used), -1) {
			require.Contains(t, "\n"+text, "\n# TYPE "+name+" gauge\n", file)
			named++
		}
	}
	require.Greater(t, named, 10)
	holder.end(t)
	other.end(t)
	require.Zero(t, waiter.wait(t))
}
