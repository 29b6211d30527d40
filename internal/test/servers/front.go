package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
)

// front is a program that stands in front of a server: a pooler, or a proxy.
type front struct {
	name    string
	program string // its path in the packages; on the machine it is looked for by its name
	from    Packages
	fits    func(version string) bool // whether one of the machine will do; nil: any
	ending  syscall.Signal
}

// facing is one of them before a server.
type facing struct {
	kind Kind
	of   string // the server's name
	// file is the text of the configuration. Root is the tree of packages; empty for a program of
	// the machine.
	file func(root, folder string, port int) string
	line func(path string) []string // the arguments by which the program reads it
	dsn  func(port int) string
}

// start starts it, private.
func (f front) start(ctx context.Context, to facing) (*Server, error) {
	program, root, origin, err := f.find(ctx)
	if err != nil {
		return nil, fmt.Errorf("no %s to run: %w", f.name, err)
	}
	return startPrivate(ctx, "", func(folder string, port int) plan {
		path := filepath.Join(folder, "front.conf")
		return plan{
			kind: to.kind, name: f.name + " before " + to.of, origin: origin, run: append(program, to.line(path)...),
			files: map[string]string{path: to.file(root, folder, port)}, dsn: to.dsn(port),
			answers: to.kind.answers, ending: f.ending,
		}
	})
}

// find finds the program on the machine, or else unpacks it.
func (f front) find(ctx context.Context) (program []string, root, origin string, err error) {
	path, version, err := lookUp(filepath.Base(f.program))
	if err == nil && (f.fits == nil || f.fits(version)) {
		return []string{path}, "", path, nil
	}
	root, unpackErr := unpacked(ctx, f.name, f.from)
	if unpackErr != nil {
		return nil, "", "", errors.Join(err, unpackErr)
	}
	return []string{filepath.Join(root, "run"), f.program}, root, unpackedOrigin(f.from.Suite, root), nil
}

// inFrontOf is the address of a PostgreSQL server that a pooler stands in front of, and the
// pooler's, by its port.
func (f front) inFrontOf(server *Server) (target *url.URL, at func(port int) string, err error) {
	if !server.Kind.Postgres() {
		return nil, nil, fmt.Errorf("%s is for PostgreSQL, not for %s", f.name, server.Name)
	}
	if target, err = url.Parse(server.DSN); err != nil {
		return nil, nil, err
	}
	if target.Port() == "" {
		target.Host += ":5432"
	}
	return target, func(port int) string {
		address := *target
		address.Host = fmt.Sprintf("127.0.0.1:%d", port)
		address.RawQuery = "sslmode=disable"
		return address.String()
	}, nil
}

// quoted is text as the configurations of PgBouncer and pgpool-II quote it.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

var haproxy = front{
	name: "HAProxy", program: "usr/sbin/haproxy", from: Packages{"bookworm", []string{"haproxy"}, true},
	ending: syscall.SIGTERM,
}

// StartHAProxy starts a private HAProxy before a fleet, as people run it: in TCP mode, to whichever
// server says that it is the primary. Its DSN is for clients, and stays the same in a switchover.
// Settings are lines of its section for the servers. They come last, so they win.
//
// The health check is over HTTP, as with Patroni: beside each server, a process answers whether
// that is the primary. Here this process does.
func StartHAProxy(ctx context.Context, fleet *Fleet, settings ...string) (*Server, error) {
	var roles []*role
	stop := func() (err error) {
		for _, r := range roles {
			err = errors.Join(err, r.close())
		}
		return err
	}
	for _, server := range fleet.Servers() {
		r, err := listenRole(fleet, server)
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		roles = append(roles, r)
	}
	proxy, err := haproxy.start(ctx, facing{
		kind: fleet.Kind, of: fleet.Primary().Name, dsn: func(port int) string { return clientDSN(fleet.Kind, port) },
		line: func(path string) []string { return []string{"-db", "-f", path} },
		file: func(_, _ string, port int) string { return haproxyFile(port, roles, settings) },
	})
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	for _, r := range roles { // before its first check, it takes any server for a primary
		for range 2 {
			select {
			case <-r.asked:
			case <-ctx.Done():
				return nil, errors.Join(ctx.Err(), proxy.Stop(), stop())
			}
		}
	}
	proxy.stop = func() error { return errors.Join(proxy.own.remove(), stop()) }
	return proxy, nil
}

// haproxyFile is the configuration. The checks are more often than people have them, so that a test
// does not wait for them.
func haproxyFile(port int, roles []*role, settings []string) string {
	text := []string{
		"global", "maxconn 2000",
		"listen pair", "mode tcp", fmt.Sprintf("bind 127.0.0.1:%d", port),
		"timeout connect 1s", "timeout check 1s", "timeout client 1h", "timeout server 1h",
		"retries 0", // else a client of a primary that is gone waits for three seconds, whoever is the next
		"option httpchk GET /primary", "http-check expect status 200",
		"default-server inter 100ms fall 1 rise 1 on-marked-down shutdown-sessions",
	}
	text = append(text, settings...)
	for i, r := range roles {
		text = append(text, fmt.Sprintf("server server%d %s check port %d", i+1, r.of, r.port()))
	}
	return textOf(text, nil)
}

// clientDSN is the address for clients.
func clientDSN(kind Kind, port int) string {
	if !kind.Postgres() {
		return fmt.Sprintf("%s@tcp(127.0.0.1:%d)/txlock", Client, port)
	}
	return strings.Replace(urlOf(kind, port), "/postgres?", "/txlock?", 1)
}

// role answers over HTTP whether a server is the primary, as the server says itself: with 200 or
// with 503.
type role struct {
	of       string // the server's address
	listener net.Listener
	server   http.Server
	asked    chan struct{} // gets the first questions
	question question
}

func listenRole(fleet *Fleet, server *Server) (*role, error) {
	r := &role{of: server.Address(), asked: make(chan struct{}, 2)}
	var err error
	if r.question, err = fleet.flow.asks(server); err != nil {
		return nil, err
	}
	if r.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, errors.Join(err, r.question.Close())
	}
	r.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		ctx, cancel := context.WithTimeout(request.Context(), answered)
		defer cancel()
		if leads, err := r.question.leads(ctx); err != nil || !leads {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		select {
		case r.asked <- struct{}{}:
		default:
		}
	})
	go func() { _ = r.server.Serve(r.listener) }()
	return r, nil
}

func (r *role) port() int { return r.listener.Addr().(*net.TCPAddr).Port }

func (r *role) close() error { return errors.Join(r.server.Close(), r.question.Close()) }
