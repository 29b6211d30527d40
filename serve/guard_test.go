package serve

import (
	"context"
	"encoding/base64"
	"errors"
	"html"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
)

const secret = "0123456789abcdef-secret"

func pageOf(t *testing.T, locks Locks, options ...Option) *Page {
	t.Helper()
	p, err := New(locks, options...)
	require.NoError(t, err)
	return p
}

// asked is the answer to a request, made as by a browser at http://localhost:8044.
func asked(p http.Handler, method, target string, form url.Values, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(form.Encode()))
	r.Host = "localhost:8044"
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

func get(p http.Handler, target string, headers ...string) *httptest.ResponseRecorder {
	return asked(p, "GET", target, nil, headers...)
}

// Every answer, also a refusal, has the headers that keep other sites out.
func TestHeaders(t *testing.T) {
	t.Parallel()
	p := pageOf(t, &still{holdings: []txlock.Holding{held("k", "1")}}, AllowBreak())
	for _, target := range []string{"/", "/lock?table=a&row=1", "/style.css", "/script.js", "/nowhere", "/break"} {
		for _, host := range []string{"localhost", "evil.example"} {
			h := get(p, target, "Host", host).Header()
			require.Equal(t, "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "+
				"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
				h.Get("Content-Security-Policy"), target)
			require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
			require.Equal(t, "no-referrer", h.Get("Referrer-Policy"))
			require.Equal(t, "no-store", h.Get("Cache-Control"))
			require.Equal(t, "DENY", h.Get("X-Frame-Options"))
		}
	}
	body := get(p, "/").Body.String()
	require.NotRegexp(t, `<script(?:>| [^s])|<style| style=| on[a-z]+=|https?://`, body, "the policy would stop it")
}

func TestHosts(t *testing.T) {
	t.Parallel()
	p := pageOf(t, &still{}, Hosts("Locks.example.com"))
	for host, code := range map[string]int{
		"localhost": 200, "localhost:8044": 200, "LOCALHOST:1": 200, "127.0.0.1:8044": 200, "127.1.2.3": 200,
		"[::1]:8044": 200, "[::1]": 200, "locks.example.com": 200, "locks.EXAMPLE.com:443": 200,
		"evil.example": 403, "localhost.evil.example": 403, "10.0.0.7:8044": 403, "": 403, "localhost:8044:1": 403,
		"127.0.0.1.nip.io": 403, "xlocks.example.com": 403, "[::2]": 403,
	} {
		require.Equal(t, code, get(p, "/", "Host", host).Code, host)
	}
	local := httptest.NewRequest("GET", "http://192.0.2.7:8044/", nil)
	local = local.WithContext(context.WithValue(background, http.LocalAddrContextKey,
		&net.TCPAddr{IP: net.ParseIP("192.0.2.7"), Port: 8044}))
	w := httptest.NewRecorder()
	p.ServeHTTP(w, local)
	require.Equal(t, 200, w.Code, "the address at which the request arrived")
}

func TestToken(t *testing.T) {
	t.Parallel()
	p := pageOf(t, &still{holdings: []txlock.Holding{held("sku:42", "1")}}, Token(secret), AllowBreak(), Name("db7"))
	for _, target := range []string{
		"/", "/lock?table=txlock_slots&row=6", "/metrics", "/break?table=txlock_slots&row=6&session=1",
	} {
		w := get(p, target)
		require.Equal(t, 401, w.Code, target)
		require.Contains(t, w.Header().Get("WWW-Authenticate"), "Basic ", "a browser asks for it")
		require.NotRegexp(t, "sku:42|db7", w.Body.String())
	}
	require.Equal(t, 401, asked(p, "POST", "/break", url.Values{}, "Sec-Fetch-Site", "same-origin").Code)
	basic := func(token string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte("anybody:"+token))
	}
	for given, code := range map[string]int{
		"Bearer " + secret: 200, "Bearer " + secret + "x": 401, "Bearer ": 401, secret: 401,
		basic(secret): 200, basic(secret + "x"): 401, basic(""): 401, "Basic " + secret: 401,
	} {
		require.Equal(t, code, get(p, "/", "Authorization", given).Code, given)
	}
}

// Reading changes nothing, and what was not allowed is not there.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	locks := &still{holdings: []txlock.Holding{held("sku:42", "1", "2")}}
	p := pageOf(t, locks)
	require.NotContains(t, get(p, "/lock?table=txlock_slots&row=6").Body.String(), `href="break`)
	require.Equal(t, 404, get(p, "/break?table=txlock_slots&row=6&session=1").Code)
	require.Equal(t, 404, asked(p, "POST", "/break", url.Values{}, "Sec-Fetch-Site", "same-origin").Code)
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		require.Equal(t, 405, asked(p, method, "/", nil).Code)
	}
	p = pageOf(t, locks, AllowBreak())
	require.Equal(t, 200, get(p, "/break?table=txlock_slots&row=6&session=1").Code)
	require.Equal(t, 404, get(p, "/break?table=txlock_slots&row=6&session=2").Code, "a waiter")
	require.Equal(t, 404, get(p, "/break?table=txlock_slots&row=6").Code)
	require.Equal(t, 405, asked(p, "DELETE", "/break", nil).Code)
	require.Empty(t, locks.ended)
}

var inForm = regexp.MustCompile(`type="hidden" name="([a-z]+)" value="([^"]*)"`)

// offered is the form that ends a session.
func offered(t *testing.T, p http.Handler, of url.Values) (form url.Values) {
	t.Helper()
	w := get(p, "/break?"+of.Encode())
	require.Equal(t, 200, w.Code)
	require.Equal(t, "same-origin", w.Header().Get("Referrer-Policy"), "else browsers send the form with origin null")
	form = url.Values{}
	for _, found := range inForm.FindAllStringSubmatch(w.Body.String(), -1) {
		form.Set(found[1], html.UnescapeString(found[2]))
	}
	return form
}

var firstOf42 = url.Values{"table": {"txlock_slots"}, "row": {"6"}, "session": {"1"}}

func TestBreakOrigin(t *testing.T) {
	t.Parallel()
	locks := &still{holdings: []txlock.Holding{held("sku:42", "1", "2")}}
	p := pageOf(t, locks, AllowBreak())
	form := offered(t, p, firstOf42)
	for _, headers := range [][]string{
		{},
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
		{"Sec-Fetch-Site", "none"},
		{"Origin", "http://evil.example"},
		{"Origin", "http://localhost:9999"},
		{"Origin", "null"},
		{"Sec-Fetch-Site", "cross-site", "Origin", "http://localhost:8044"},
	} {
		require.Equal(t, 403, asked(p, "POST", "/break", form, headers...).Code, headers)
	}
	foreign := []string{"Origin", "http://evil.example", "Host", "evil.example"}
	require.Equal(t, 403, asked(p, "POST", "/break", form, foreign...).Code)
	require.Empty(t, locks.ended)
	refused := asked(p, "POST", "/break", form, "Origin", "https://locks.example.com").Body.String()
	require.Regexp(t, `"https://locks.example.com".*"localhost:8044"`, refused)
	proxied := []string{"Sec-Fetch-Site", "same-origin", "Origin", "https://locks.example.com"}
	require.Equal(t, 200, asked(p, "POST", "/break", form, proxied...).Code, "a proxy with the host of the upstream")
	require.Equal(t, []string{"1"}, locks.ended)
	require.Equal(t, 200, asked(p, "POST", "/break", form, "Origin", "http://localhost:8044").Code)
	require.Equal(t, 409, asked(p, "POST", "/break", url.Values{}, "Origin", "http://localhost:8044").Code)
}

// The session that was shown is ended, in the transaction that was shown, and not who holds the
// lock by then.
func TestBreakShown(t *testing.T) {
	t.Parallel()
	shown := held("sku:42", "1", "2")
	shown.Holder.Transaction = `the "first"`
	locks, own := &still{holdings: []txlock.Holding{shown}}, []string{"Sec-Fetch-Site", "same-origin"}
	p := pageOf(t, locks, AllowBreak())
	form := offered(t, p, firstOf42)
	again := held("sku:42", "1")
	again.Holder.Transaction = "the next"
	locks.show([]txlock.Holding{again}, nil)
	require.Equal(t, 200, asked(p, "POST", "/break", form, own...).Code)
	require.Equal(t, []string{"1"}, locks.ended)
	require.Equal(t, `the "first"`, locks.transaction, "the server compares it with the present one")

	for err, code := range map[error]int{txlock.ErrNotHeld: 409, errors.New("no right"): 502} {
		locks.breaking = err
		w := asked(p, "POST", "/break", form, own...)
		require.Equal(t, code, w.Code)
		require.Contains(t, w.Body.String(), "Nothing was ended")
	}
	locks.breaking = nil
	locks.show([]txlock.Holding{held("sku:42", "2")}, nil)
	require.Equal(t, 409, asked(pageOf(t, locks, AllowBreak()), "POST", "/break", form, own...).Code)
	require.Equal(t, []string{"1"}, locks.ended)
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, bad := range []Option{
		Token("short"), Token(""), Hosts(""), Hosts("http://a"), Every(time.Millisecond), Timeout(0), nil,
	} {
		_, err := New(&still{}, bad)
		require.ErrorContains(t, err, "txlock: serve: ")
	}
	_, err := New(nil)
	require.Error(t, err)
}

// Mounted below a path, the page finds itself: its links are relative.
func TestMounted(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	page := pageOf(t, &still{holdings: []txlock.Holding{held("k", "1")}})
	mux.Handle("/admin/locks/", http.StripPrefix("/admin/locks", page))
	w := get(mux, "/admin/locks/")
	require.Equal(t, 200, w.Code)
	require.NotRegexp(t, `(href|src|action)="/`, w.Body.String())
	require.Equal(t, 200, get(mux, "/admin/locks/style.css").Code)
}
