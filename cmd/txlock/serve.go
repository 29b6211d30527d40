package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/dsn"
	"github.com/txlock/txlock/serve"
)

const serveHelp = `Serves a page for a browser that shows what "status --watch" shows: who holds locks, who waits in
which order, and for how long. It has a page for each lock, and a search. However many people look,
the server is asked by one query at a time, at most once a second (MySQL and MariaDB: once in two),
and not at all while nobody looks.

It listens on this machine only, at 127.0.0.1. Another address needs a token, of at least 16 bytes:
in TXLOCK_SERVE_TOKEN, or in --token, which is wiped from the list of processes. A browser asks for
it as a password, with any name. There is no TLS: on a network that others can read, put a proxy
with TLS in front, or rather a tunnel to 127.0.0.1, such as "ssh -L 8044:127.0.0.1:8044 host".
Requests for another host name than localhost or the address itself are refused, unless --host
allows the name.

The page only reads. With --allow-break it can also end the session of a holder, as "txlock break"
does: the one that it has shown, after asking. Every process that can connect to the port can do
that, on 127.0.0.1 those of all users of the machine: set a token there too.

/metrics is for Prometheus: how many locks are held and awaited, and for how long, by table and
kind; /metrics?key=sku:42 adds that of a key. Prometheus gives the token as a bearer token, and the
host name by which it asks has to be allowed as any. docs/alerts.md has rules for alerts.

It runs until a signal ends it, and exits with 0 then.`

// listenDefault is on this machine alone.
const listenDefault = "127.0.0.1:8044"

// serving is one call of the serve command.
type serving struct {
	*options
	listen     string
	token      string
	hosts      []string
	allowBreak bool
}

func newServe(o *options) *cobra.Command {
	s := serving{options: o}
	c := newCommand("serve [flags]", "Serve a page that shows the locks", serveHelp,
		"  txlock serve\n  TXLOCK_SERVE_TOKEN=$(cat token) txlock serve --allow-break\n"+
			"  TXLOCK_SERVE_TOKEN=$(cat token) txlock serve --listen 10.0.0.7:8044 --host locks.example.com",
		func(c *cobra.Command, _ []string) error { return s.run(c.Context(), c.OutOrStdout()) })
	c.Args = noArguments
	c.Flags().StringVar(&s.listen, "listen", listenDefault, "the `address` to listen on, with its port")
	c.Flags().StringVar(&s.token, "token", "", "what viewers have to type (default: TXLOCK_SERVE_TOKEN)")
	c.Flags().StringArrayVar(&s.hosts, "host", nil, "allow a host `name` in requests; can be repeated")
	c.Flags().BoolVar(&s.allowBreak, "allow-break", false, "let viewers end the session of a holder")
	return c
}

// address resolves where to listen, and refuses what others could reach without a token.
func (s *serving) address(token string) (*net.TCPAddr, error) {
	at, err := net.ResolveTCPAddr("tcp", s.listen)
	if err != nil {
		return nil, usage("--listen %s: %v", s.listen, err)
	}
	if token == "" && !at.IP.IsLoopback() {
		return nil, usage("--listen %s: others can reach that address; set TXLOCK_SERVE_TOKEN to what they have to "+
			"type, or listen on 127.0.0.1", s.listen)
	}
	return at, nil
}

func (s *serving) run(ctx context.Context, out io.Writer) error {
	token := s.token
	if token == "" {
		token = os.Getenv("TXLOCK_SERVE_TOKEN")
	}
	at, err := s.address(token)
	if err != nil {
		return err
	}
	if err := s.findTable(); err != nil {
		return err
	}
	settings, err := s.settings(token)
	if err != nil {
		return err
	}
	locks, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer leave(locks)
	if _, err := s.inspect(ctx, "serve", locks); err != nil { // what is missing is better said here than on the page
		return err
	}
	page, err := serve.New(discreet{locks, s.options}, settings...)
	if err != nil {
		return s.failed(ctx, "serve", err)
	}
	listener, err := net.ListenTCP("tcp", at)
	if err != nil {
		return s.failed(ctx, "listen on "+s.listen, &ending{code: exitError, text: err.Error()})
	}
	if _, err := fmt.Fprintf(out, "serving on http://%s/\n", listener.Addr()); err != nil {
		_ = listener.Close()
		return s.failed(ctx, "write", err)
	}
	return s.failed(ctx, "serve", serveUntil(ctx, listener, page))
}

// settings are the options of the page. They are tried before the server is asked for anything.
func (s *serving) settings(token string) ([]serve.Option, error) {
	every := 2 * time.Second // often enough to bother MariaDB: see Inspect
	if s.server.System == dsn.Postgres {
		every = time.Second
	}
	settings := []serve.Option{
		serve.Name(s.server.Address), serve.Every(every), serve.Timeout(s.server.Timeout), serve.Hosts(s.hosts...),
	}
	if token != "" {
		settings = append(settings, serve.Token(token))
	}
	if s.allowBreak {
		settings = append(settings, serve.AllowBreak())
	}
	if _, err := serve.New(discreet{}, settings...); err != nil {
		return nil, usage("%s", reasonOf(err))
	}
	return settings, nil
}

// serveUntil serves until ctx ends, and with it whoever is looking.
func serveUntil(ctx context.Context, listener net.Listener, page http.Handler) error {
	server := &http.Server{
		Handler: page, BaseContext: func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: log.New(os.Stderr, "txlock: ", 0),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if server.Shutdown(bounded) != nil {
		_ = server.Close()
	}
	return nil
}

// discreet keeps passwords, and what only programs need, out of the errors that the page shows.
type discreet struct {
	locks locker
	o     *options
}

// Inspect implements serve.Locks.
func (d discreet) Inspect(ctx context.Context, keys ...string) ([]txlock.Holding, error) {
	holdings, err := d.locks.Inspect(ctx, keys...)
	return holdings, d.tell(err)
}

// Break implements serve.Locks.
func (d discreet) Break(ctx context.Context, holding txlock.Holding) error {
	err := d.locks.Break(ctx, holding)
	if errors.Is(err, txlock.ErrNotHeld) {
		return err
	}
	return d.tell(err)
}

func (d discreet) tell(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(d.o.server.Redact(dsn.Redact(reasonOf(err))))
}
