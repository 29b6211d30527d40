// Package serve is a web page that shows who holds locks of package txlock, and who waits for them.
// The command "txlock serve" runs it; a program mounts it behind its own login:
//
//	page, err := serve.New(locks, serve.Hosts("admin.example.com"))
//	mux.Handle("/locks/", requireLogin(http.StripPrefix("/locks", page)))
//
// All viewers share one picture: the server is asked by one query at a time, every 2 s at most, and
// not at all while nobody looks. Reading works without JavaScript, and changes nothing. With
// JavaScript the page loads itself again and again. It loads nothing from elsewhere.
//
// Its path metrics is for Prometheus: how many locks are held and awaited, and for how long, by
// table and kind. The query ?key=sku:42 adds that of a key. docs/alerts.md has the names, and
// rules.
package serve

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"html/template"
	"net/http"

	"github.com/txlock/txlock"
)

// Locks is the part of a [txlock.Locker] that a Page needs. Every Locker has it.
type Locks interface {
	Inspect(ctx context.Context, keys ...string) ([]txlock.Holding, error)
	Break(ctx context.Context, holding txlock.Holding) error
}

// Page is the [http.Handler]. Its links are relative, so that it can be mounted below any path that
// ends in a slash. While nobody looks it has no goroutine, so it need not be closed.
type Page struct {
	config
	watch  *watch
	routes *http.ServeMux
}

//go:embed assets
var assets embed.FS

var templates = template.Must(template.ParseFS(assets, "assets/*.html"))

// New returns the page of these locks. Without options it answers only requests that name this
// machine as their host, asks for no token, and breaks nothing.
func New(locks Locks, options ...Option) (*Page, error) {
	if locks == nil {
		return nil, errors.New("txlock: serve: the locks are nil")
	}
	c := config{every: defaultEvery, limit: defaultLimit}
	for _, option := range options {
		if option == nil {
			return nil, errors.New("txlock: serve: an option is nil")
		}
		option.apply(&c)
	}
	if c.err != nil {
		return nil, c.err
	}
	p := &Page{
		config: c, watch: &watch{locks: locks, every: c.every, limit: c.limit}, routes: http.NewServeMux(),
	}
	p.route(locks)
	return p, nil
}

func (p *Page) route(locks Locks) {
	for name, kind := range map[string]string{
		"style.css": "text/css; charset=utf-8", "script.js": "text/javascript; charset=utf-8",
		"icon.svg": "image/svg+xml",
	} {
		p.routes.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			http.ServeFileFS(w, r, assets, "assets/"+name)
		})
	}
	for path, part := range map[string]string{"GET /{$}": "list", "GET /lock": "lock"} {
		p.routes.HandleFunc(path, p.members(func(w http.ResponseWriter, r *http.Request) { p.show(w, r, part) }))
	}
	p.routes.HandleFunc("GET /metrics", p.members(p.metrics))
	if p.breaking {
		p.routes.HandleFunc("GET /break", p.members(p.confirm))
		p.routes.HandleFunc("POST /break", p.members(func(w http.ResponseWriter, r *http.Request) {
			p.breakUp(w, r, locks)
		}))
	}
}

// ServeHTTP implements [http.Handler].
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	if !p.mine(r) {
		refuse(w, http.StatusForbidden, "This page is not served under the host name of this request. "+
			"Its operator has to allow the name.")
		return
	}
	p.routes.ServeHTTP(w, r)
}

// frame is what is around each view.
type frame struct {
	Title  string
	Server string
	Part   string // the view: list, lock, or another page
	Search string
	Every  int64  // after how many milliseconds the page is loaded again; 0: never
	State  string // what is wrong with the picture, else empty
	Body   any
}

// show writes a view as a whole page.
func (p *Page) show(w http.ResponseWriter, r *http.Request, part string) {
	s, err := p.watch.newest(r.Context())
	if err != nil {
		return // the viewer has left
	}
	query := r.URL.Query()
	f := frame{
		Title: "Locks", Part: part, Search: query.Get("key"), Every: p.every.Milliseconds(), State: s.trouble(),
	}
	if part == "lock" {
		lock := p.lockPage(s, lockID{query.Get("table"), query.Get("column"), query.Get("row")})
		f.Title, f.Body = cut(lock.Name, longestName), lock
	} else {
		f.Body = listOf(s, query.Get("key"))
	}
	p.write(w, http.StatusOK, f)
}

// write sends a page. It renders it first, so that a viewer never gets half of one.
func (p *Page) write(w http.ResponseWriter, code int, f frame) {
	f.Server = p.name
	var text bytes.Buffer
	if err := templates.ExecuteTemplate(&text, "frame", f); err != nil {
		refuse(w, http.StatusInternalServerError, "This page could not be made: "+err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(text.Bytes())
}

// refuse answers without a page.
func refuse(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text + "\n"))
}
