package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
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

// members has others log in.
func (p *Page) members(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if p.token != "" && !p.right(r) {
			w.Header().Set("WWW-Authenticate", `Basic realm="txlock", charset="UTF-8"`)
			refuse(w, http.StatusUnauthorized, "This page asks for a token: it is the password, with any name.")
			return
		}
		next(w, r)
	}
}

// right tells whether a request has the token, as a browser or as a program sends it.
func (p *Page) right(r *http.Request) bool {
	_, token, found := r.BasicAuth()
	if !found {
		token, found = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	given, wanted := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(p.token))
	return found && subtle.ConstantTimeCompare(given[:], wanted[:]) == 1
}
