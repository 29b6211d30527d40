// Leader is a program for a Deployment: each of its replicas stands by, and one of them leads. The
// manifests are in deploy/kubernetes.
//
//	TXLOCK_DSN=postgres://app@localhost/shop POD_NAME=scheduler-1 go run ./examples/leader
//	curl localhost:8080/readyz
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
)

// pod is what Kubernetes tells the program, in environment variables.
type pod struct {
	name   string // who it is to the others
	listen string // for probes
	lease  time.Duration
}

func main() {
	// The kubelet sends SIGTERM: the context ends, and with it the leadership. Nothing else has to
	// be done at the end, so no preStop hook is needed.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Print(err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	p, err := environment()
	if err != nil {
		return err
	}
	dsn, lease := os.Getenv("TXLOCK_DSN"), txlock.WithLease(p.lease)
	if !strings.HasPrefix(dsn, "postgres") {
		driver, err := mysql.Open(ctx, dsn) // user:password@tcp(host)/shop
		if err != nil {
			return err
		}
		return serve(ctx, p, txlock.New(driver, lease))
	}
	driver, err := postgres.Open(ctx, dsn)
	if err != nil {
		return err
	}
	return serve(ctx, p, txlock.New(driver, lease))
}

func environment() (p pod, err error) {
	p = pod{name: os.Getenv("POD_NAME"), listen: os.Getenv("LISTEN"), lease: 30 * time.Second}
	if p.listen == "" {
		p.listen = ":8080"
	}
	if p.name == "" {
		if p.name, err = os.Hostname(); err != nil { // in a pod: its name
			return p, err
		}
	}
	if text := os.Getenv("LEASE"); text != "" {
		p.lease, err = time.ParseDuration(text)
	}
	return p, err
}

// serve answers probes and campaigns, until ctx ends.
func serve[Tx any](ctx context.Context, p pod, locks *txlock.Locker[Tx]) error {
	defer locks.Close()
	listener, err := net.Listen("tcp", p.listen)
	if err != nil {
		return err
	}
	fmt.Println("probes", listener.Addr())
	probes := &http.Server{Handler: handler(locks)}
	served := make(chan error, 1)
	go func() { served <- probes.Serve(listener) }()
	led := make(chan error, 1)
	go func() { led <- locks.Election("scheduler", p.name).Lead(ctx, p.schedule) }()
	select {
	case err := <-served:
		return err
	case err := <-led:
		// Probes are answered until the leader has resigned.
		if closing := probes.Close(); ctx.Err() == nil {
			return errors.Join(err, closing) // the lock table is missing, say: Kubernetes starts the pod again
		}
		return nil
	}
}

// handler answers the two probes. Neither asks who leads: a replica that stands by is as ready as
// the one that leads, or a rollout would wait for it for ever. And the liveness probe does not ask
// the database: when that is away, a restart of every pod would not bring it back.
func handler[Tx any](locks *txlock.Locker[Tx]) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := locks.Ping(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	return mux
}

// schedule is the work of the leader. It returns soon after ctx ends: until then nobody else leads
// after a SIGTERM, and terminationGracePeriodSeconds bounds it.
func (p pod) schedule(ctx context.Context, term int64) error {
	fmt.Println("leads", term, time.Now().UnixNano())
	defer func() { fmt.Println("led", term, time.Now().UnixNano()) }()
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C: // what is due goes here: with a Do, or with the term
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
