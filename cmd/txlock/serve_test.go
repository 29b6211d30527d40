//go:build unix

package main_test

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/must"
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
