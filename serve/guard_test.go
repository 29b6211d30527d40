package serve

import (
	"context"
	"errors"
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
	for _, target := range []string{
		"/", "/graph", "/lock?table=a&row=1", "/style.css", "/script.js", "/nowhere", "/break",
	} {
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
		"/", "/graph", "/lock?table=txlock_slots&row=6", "/events?of=list", "/break?table=txlock_slots&row=6&session=1",
	} {
		w := get(p, target)
		require.Equal(t, 401, w.Code, target)
		require.NotRegexp(t, "sku:42|db7", w.Body.String())
	}
	require.Equal(t, 401, asked(p, "POST", "/break", url.Values{"shown": {"x"}}, "Sec-Fetch-Site", "same-origin").Code)
	require.Equal(t, 200, get(p, "/", "Authorization", "Bearer "+secret).Code)
	require.Equal(t, 401, get(p, "/", "Authorization", "Bearer "+secret+"x").Code)

	own := []string{"Sec-Fetch-Site", "same-origin"}
	require.Equal(t, 401, asked(p, "POST", "/login", url.Values{"token": {"wrong"}}, own...).Code)
	require.Equal(t, 401, asked(p, "POST", "/login", url.Values{"token": {""}}, own...).Code)
	right := url.Values{"token": {secret}}
	require.Equal(t, 403, asked(p, "POST", "/login", right, "Sec-Fetch-Site", "cross-site").Code)
	w := asked(p, "POST", "/login", right, own...)
	require.Equal(t, 303, w.Code)
	require.Equal(t, "./", w.Header().Get("Location"))
	cookie := w.Result().Cookies()[0]
	require.True(t, cookie.HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, cookie.SameSite)
	require.NotContains(t, cookie.String(), secret)
	require.Equal(t, 200, get(p, "/", "Cookie", cookie.Name+"="+cookie.Value).Code)

	end, mac, _ := strings.Cut(cookie.Value, ".")
	for _, forged := range []string{
		end, end + ".", "9" + end + "." + mac, "." + mac, p.logins.signed("1"), p.logins.signed("x"),
	} {
		require.Equal(t, 401, get(p, "/", "Cookie", cookie.Name+"="+forged).Code, forged)
	}
	other := pageOf(t, &still{}, Token(secret))
	require.Equal(t, 401, get(other, "/", "Cookie", other.logins.cookie+"="+cookie.Value).Code, "of another process")
}

// Reading changes nothing, and what was not allowed is not there.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	locks := &still{holdings: []txlock.Holding{held("sku:42", "1", "2")}}
	p := pageOf(t, locks)
	require.NotContains(t, get(p, "/lock?table=txlock_slots&row=6").Body.String(), `href="break`)
	require.Equal(t, 404, get(p, "/break?table=txlock_slots&row=6&session=1").Code)
	require.Equal(t, 404, asked(p, "POST", "/break", url.Values{"shown": {"x"}}, "Sec-Fetch-Site", "same-origin").Code)
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

var inForm = regexp.MustCompile(`name="shown" value="([^"]+)"`)

func offered(t *testing.T, p http.Handler) url.Values {
	t.Helper()
	w := get(p, "/break?table=txlock_slots&row=6&session=1")
	require.Equal(t, 200, w.Code)
	require.Equal(t, "same-origin", w.Header().Get("Referrer-Policy"), "else browsers send the form with origin null")
	return url.Values{"shown": {inForm.FindStringSubmatch(w.Body.String())[1]}}
}

func TestBreakOrigin(t *testing.T) {
	t.Parallel()
	locks := &still{holdings: []txlock.Holding{held("sku:42", "1", "2")}}
	p := pageOf(t, locks, AllowBreak())
	form := offered(t, p)
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
	require.Equal(t, 410, asked(p, "POST", "/break", form, "Origin", "http://localhost:8044").Code, "once")
	require.Equal(t, 410, asked(p, "POST", "/break", url.Values{}, "Origin", "http://localhost:8044").Code)
}

// The session that was shown is ended, and not who holds the lock by then.
func TestBreakShown(t *testing.T) {
	t.Parallel()
	locks := &still{holdings: []txlock.Holding{held("sku:42", "1", "2")}}
	p := pageOf(t, locks, AllowBreak())
	form, own := offered(t, p), []string{"Sec-Fetch-Site", "same-origin"}
	locks.show([]txlock.Holding{held("sku:42", "2")}, nil)
	require.Equal(t, 200, asked(p, "POST", "/break", form, own...).Code)
	require.Equal(t, []string{"1"}, locks.ended)

	for err, code := range map[error]int{txlock.ErrNotHeld: 409, errors.New("no right"): 502} {
		locks.breaking = nil
		form = offered(t, p)
		locks.breaking = err
		w := asked(p, "POST", "/break", form, own...)
		require.Equal(t, code, w.Code)
		require.Contains(t, w.Body.String(), "Nothing was ended")
	}
	p.offers.shown = map[string]offer{"late": {held("k", "1"), time.Now().Add(-time.Second)}}
	require.Equal(t, 410, asked(p, "POST", "/break", url.Values{"shown": {"late"}}, own...).Code)
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
	require.NotRegexp(t, `(href|src|action|data-events)="/`, w.Body.String())
	require.Equal(t, 200, get(mux, "/admin/locks/style.css").Code)
}
