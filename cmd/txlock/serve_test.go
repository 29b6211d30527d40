//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
)

// What others could reach is not served without a token, and no server is asked before.
func TestServeRefuses(t *testing.T) {
	t.Parallel()
	unreachable := "TXLOCK_DSN=postgres://127.0.0.1:1/nowhere"
	for typed, told := range map[string]string{
		"--listen 0.0.0.0:0":               "others can reach that address; set TXLOCK_SERVE_TOKEN",
		"--listen :0":                      "others can reach that address",
		"--listen [::]:0":                  "others can reach that address",
		"--listen 192.0.2.1:0":             "others can reach that address",
		"--listen 127.0.0.1":               "--listen 127.0.0.1: ",
		"--listen 127.0.0.1:many":          "--listen 127.0.0.1:many: ",
		"--listen 0.0.0.0:0 --token short": "Token: it must have at least 16 bytes",
		"--token short":                    "Token: it must have at least 16 bytes",
		"--host http://here":               "is no name of a host",
		"k":                                "serve takes no arguments",
		"--listen 0.0.0.0:0 --token= --allow-break":           "others can reach that address",
		"--listen 0.0.0.0:0 --host a.example --host b.exampl": "others can reach that address",
	} {
		r := run(t, []string{unreachable}, append([]string{"serve"}, strings.Fields(typed)...)...)
		require.Equal(t, 64, r.code, typed)
		require.Contains(t, r.stderr, told, typed)
		require.Empty(t, r.stdout)
	}
}

// serve serves the page on a free port.
func (f *fixture) serve(t *testing.T, flags ...string) (p *process, address string) {
	t.Helper()
	p = f.start(t, append([]string{"serve", "--listen", "127.0.0.1:0"}, flags...)...)
	address, found := strings.CutPrefix(p.line(t), "serving on ")
	require.True(t, found)
	return p, address
}

func TestServe(t *testing.T) { each(t, serves) }

func serves(t *testing.T, e *engine) {
	f := installed(t, e)
	holder := f.play(t, "polite", "sku:42")
	waiter := f.start(t, "run", "sku:42", "--", "true") // MariaDB lists what somebody waits for
	const token = "0123456789abcdef"
	p, address := f.serve(t, "--token", token, "--allow-break", "--host", "locks.example")

	// ask returns the code and the body of an answer.
	ask := func(path, host, given string, form url.Values) (int, string) {
		method, body := "GET", io.Reader(nil)
		if form != nil {
			method, body = "POST", strings.NewReader(form.Encode())
		}
		r := must.Get(http.NewRequest(method, address+path, body))(t)
		r.Host = host
		r.Header.Set("Authorization", "Bearer "+given)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		answer := must.Get(http.DefaultClient.Do(r))(t)
		defer answer.Body.Close()
		text := must.Get(io.ReadAll(answer.Body))(t)
		return answer.StatusCode, string(text)
	}
	for host, code := range map[string]int{"": 200, "locks.example": 200, "evil.example": 403} {
		got, _ := ask("", host, token, nil)
		require.Equal(t, code, got, host)
	}
	code, text := ask("", "", "wrong", nil)
	require.Equal(t, 401, code)
	require.NotContains(t, text, "txlock_slots")
	if runtime.GOOS == "linux" {
		line := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.Process.Pid)))(t)
		require.NotContains(t, string(line), token)
		require.Contains(t, string(line), "--allow-break")
	}

	// The page leads to the button that ends the holder's session.
	between := func(text, before, after string) string {
		_, rest, found := strings.Cut(text, before)
		require.True(t, found, "%s in %s", before, text)
		inside, _, _ := strings.Cut(rest, after)
		return strings.ReplaceAll(inside, "&amp;", "&")
	}
	eventually.True(t, "the lock", func() bool {
		_, text = ask("", "", token, nil)
		return strings.Contains(text, `href="lock`)
	})
	lock := between(text, `href="lock`, `"`)
	if e.postgres {
		require.Contains(t, text, "sku:42")
	}
	eventually.True(t, "the holder by name", func() bool { // MariaDB may take a few looks
		_, text = ask("lock"+lock, "", token, nil)
		return strings.Contains(text, `href="break`)
	})
	_, text = ask(between(text, `id="break0" class="danger" href="`, `"`), "", token, nil)
	form := url.Values{}
	hiddens := regexp.MustCompile(`type="hidden" name="(\w+)" value="([^"]*)"`)
	for _, hidden := range hiddens.FindAllStringSubmatch(text, -1) {
		form.Set(hidden[1], html.UnescapeString(hidden[2]))
	}
	code, text = ask("break", "", token, form)
	require.Equal(t, 200, code, text)
	require.Contains(t, text, "was ended")
	require.Equal(t, 76, holder.wait(t))
	require.Zero(t, waiter.wait(t))

	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Zero(t, p.wait(t))
}

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
