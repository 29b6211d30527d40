package serve

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// secure sets the headers of every answer.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// withOrigin is for pages with a form that is posted: under no-referrer browsers send it with the
// origin "null".
func withOrigin(h http.Header) { h.Set("Referrer-Policy", "same-origin") }

// mine tells whether the request names a host under which this page may be seen. Without that check
// a foreign site whose name resolves to this machine would be of the same origin. Any port will do:
// a tunnel (ssh -L) has another one, and no foreign site can have these names.
func (p *Page) mine(r *http.Request) bool {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if host == "localhost" || slices.Contains(p.hosts, host) {
		return true
	}
	ip := net.ParseIP(host)
	if ip == nil {
		return false
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ip.IsLoopback() || local != nil && local.IP.Equal(ip)
}

// ownPost refuses a form that was not posted by this page. A browser says so in one of two headers
// at least. Where it has the first, a proxy may have changed the host.
func ownPost(w http.ResponseWriter, r *http.Request) bool {
	r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	from, err := url.Parse(origin)
	if site == "same-origin" ||
		site == "" && err == nil && from.Host != "" && strings.EqualFold(from.Host, r.Host) {
		return true
	}
	refuse(w, http.StatusForbidden, fmt.Sprintf("This form was not sent by this page: it is from %q, and was sent to "+
		"%q. A proxy in front of the page has to pass on the Host of the request.", origin, r.Host))
	return false
}

const loginLasts = 12 * time.Hour

// logins knows who has given the token. The cookie is the end of the login, signed with a key that
// dies with this process: it does not have the token.
type logins struct {
	token  []byte // its hash; nil if there is none
	key    []byte
	cookie string // another for each process: cookies do not tell the ports of a host apart
}

func (l *logins) begin(token string) {
	if token == "" {
		return
	}
	sum := sha256.Sum256([]byte(token))
	l.token, l.key = sum[:], make([]byte, 32)
	_, _ = rand.Read(l.key) // never fails
	l.cookie = "txlock_" + strings.ToLower(rand.Text()[:8])
}

func (l *logins) right(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], l.token) == 1
}

func (l *logins) signed(end string) string {
	mac := hmac.New(sha256.New, l.key)
	mac.Write([]byte(end))
	return end + "." + hex.EncodeToString(mac.Sum(nil))
}

// in tells whether a request may see the page.
func (l *logins) in(r *http.Request) bool {
	if l.token == nil {
		return true
	}
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return l.right(token)
	}
	for _, cookie := range r.CookiesNamed(l.cookie) {
		end, _, _ := strings.Cut(cookie.Value, ".")
		at, err := strconv.ParseInt(end, 10, 64)
		if err == nil && subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(l.signed(end))) == 1 &&
			time.Now().Before(time.Unix(at, 0)) {
			return true
		}
	}
	return false
}

// members shows others the login.
func (p *Page) members(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if p.logins.in(r) {
			next(w, r)
			return
		}
		p.askToken(w, "")
	}
}

func (p *Page) askToken(w http.ResponseWriter, problem string) {
	withOrigin(w.Header())
	w.Header().Set("WWW-Authenticate", `Bearer realm="txlock"`)
	p.write(w, http.StatusUnauthorized, frame{Title: "Log in", Part: "login", Body: problem})
}

func (p *Page) login(w http.ResponseWriter, r *http.Request) {
	switch {
	case !ownPost(w, r):
	case p.logins.token == nil:
		back(w)
	case !p.logins.right(r.PostFormValue("token")):
		p.askToken(w, "That is not the token.")
	default:
		end := time.Now().Add(loginLasts)
		http.SetCookie(w, &http.Cookie{ // without a path: that of this page, wherever it is mounted
			Name: p.logins.cookie, Value: p.logins.signed(strconv.FormatInt(end.Unix(), 10)),
			MaxAge: int(loginLasts.Seconds()), HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
		})
		back(w)
	}
}

// back leads to the list. http.Redirect would make the path absolute, and does not know where the
// page is mounted.
func back(w http.ResponseWriter) {
	w.Header().Set("Location", "./")
	w.WriteHeader(http.StatusSeeOther)
}
