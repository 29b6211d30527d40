// Package serve is a web page that shows who holds locks of package txlock, who waits for them, and
// who waits for whom. The command "txlock serve" runs it; a program mounts it behind its own login:
//
//	page, err := serve.New(locks, serve.Hosts("admin.example.com"))
//	mux.Handle("/locks/", requireLogin(http.StripPrefix("/locks", page)))
//
// All viewers share one picture: the server is asked by one query at a time, every 2 s at most, and
// not at all while nobody looks. Reading works without JavaScript, and changes nothing. With
// JavaScript the page follows the server. It loads nothing from elsewhere.
//
// Its path metrics is for Prometheus: how many locks are held and awaited, and for how long, by
// table and kind. The query ?key=sku:42 adds that of a key. docs/alerts.md has the names, and
// rules.
package serve

import (
	"context"
	"embed"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"time"

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
	watch   *watch
	offers  offers
	logins  logins
	routes  *http.ServeMux
	sending time.Duration // how long a viewer may take to receive an event
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
		config: c, watch: newWatch(locks, c.every, c.limit, c.elections), routes: http.NewServeMux(), sending: sending,
	}
	p.logins.begin(c.token)
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
	p.routes.HandleFunc("POST /login", p.login)
	for path, part := range map[string]string{"GET /{$}": "list", "GET /graph": "graph", "GET /lock": "lock"} {
		p.routes.HandleFunc(path, p.members(func(w http.ResponseWriter, r *http.Request) { p.show(w, r, part) }))
	}
	p.routes.HandleFunc("GET /events", p.members(p.follow))
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
	Part   string // the view: list, graph, lock, or another page
	Search string
	Events string // where the changes of this view come from; empty if it has none
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
	about := url.Values{"of": {part}}
	for _, name := range []string{"key", "page", "table", "column", "row"} {
		if query.Get(name) != "" {
			about.Set(name, query.Get(name))
		}
	}
	f := frame{
		Title: "Locks", Part: part, Search: query.Get("key"), Events: "events?" + about.Encode(), State: s.trouble(),
		Body: p.body(part, query, s),
	}
	switch body := f.Body.(type) {
	case graph:
		f.Title = "Who waits for whom"
	case lockPage:
		f.Title = cut(body.Name, longestName)
	}
	p.write(w, http.StatusOK, f)
}

// body is the data of a view, for the template of the same name.
func (p *Page) body(part string, query url.Values, s *state) any {
	switch part {
	case "graph":
		return graphOf(s)
	case "lock":
		return p.lockPage(s, lockID{query.Get("table"), query.Get("column"), query.Get("row")})
	}
	number, _ := strconv.Atoi(query.Get("page"))
	return listOf(s, query.Get("key"), number)
}

// write sends a page. It renders it first, so that a viewer never gets half of one.
func (p *Page) write(w http.ResponseWriter, code int, f frame) {
	if f.Part != "login" { // strangers need not know which server this is
		f.Server = p.name
	}
	text, err := rendered("frame", f)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "This page could not be made: "+err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(text)
}

// refuse answers without a page.
func refuse(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text + "\n"))
}
