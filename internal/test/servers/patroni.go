package servers

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/txlock/txlock/internal/test/wire"
)

// patroni is the flow of three servers of PostgreSQL under Patroni, with an etcd of one node. The
// etcd may be a given one, in which each cluster has a name of its own.
type patroni struct {
	scope string
	nodes []*node
	etcd  *Server
}

// node is a server, and the Patroni that starts and stops it.
type node struct {
	*Server
	name string
	api  int         // the port of Patroni's interface
	etcd *wire.Proxy // before etcd
}

//go:embed patroni_node.py
var patroniScript string

// patroniPackages are of a release whose Patroni is newer than 3.0.2: on etcd3, that one lets a
// leader whose key has expired while it was stopped put the key back, whoever has it meanwhile.
var patroniPackages = Packages{"trixie", []string{
	"patroni", "python3", "python3.13", "python3-minimal", "python3.13-minimal", "python3-psycopg2", "python3-yaml",
	"python3-dateutil", "python3-prettytable", "python3-click", "python3-urllib3", "python3-six", "python3-psutil",
	"python3-ydiff", "python3-wcwidth", "python3-pkg-resources", "python3-etcd", "python3-dnspython",
}, true}

// Etcd is an etcd of one node.
var Etcd = Software{
	Name: "etcd", Variable: "TXLOCK_ETCD",
	Packages: Packages{Suite: "sid", Names: []string{"etcd-server"}, Libraries: true},
	Image: Image{
		// This repository has no tag for the newest version of a series.
		Repository: "gcr.io/etcd-development/etcd", Tag: "v3.6.12", Port: "2379/tcp", DSN: "http://%s",
		Command: []string{
			"/usr/local/bin/etcd", "--listen-client-urls", "http://0.0.0.0:2379", "--advertise-client-urls",
			"http://0.0.0.0:2379",
		},
	},
	Ending: syscall.SIGQUIT,
	Find:   ProgramOf("etcd"),
	Run: func(folder string, port int) Run {
		url := "http://127.0.0.1:" + strconv.Itoa(port)
		return Run{
			Arguments: []string{
				"--data-dir", dataIn(folder), "--listen-client-urls", url, "--advertise-client-urls", url,
				"--listen-peer-urls", "http://127.0.0.1:0", // any port, because it has no peers
			},
			DSN: url,
		}
	},
	Answers: func(ctx context.Context, dsn string) error {
		_, err := overHTTP(ctx, http.MethodGet, dsn+"/health", "")
		return err
	},
}

// StartPatroni starts a cluster on a PostgreSQL that is installed. A commit returns after a standby
// has received it.
func StartPatroni(ctx context.Context, kind Kind) (*Fleet, error) {
	found, err := installed(kind)
	if err != nil {
		return nil, fmt.Errorf("a cluster under Patroni takes an installed PostgreSQL: %w", err)
	}
	root, err := unpacked(ctx, "Patroni", patroniPackages)
	if err != nil {
		return nil, err
	}
	p := &patroni{scope: "txlock-" + rand.Text()}
	if p.etcd, err = Etcd.Start(ctx); err != nil {
		return nil, err
	}
	f := &Fleet{Kind: kind, Synchronous: true, flow: p}
	for i := range 3 {
		n, err := p.startNode(ctx, kind, found, root, "node"+strconv.Itoa(i+1))
		if err != nil {
			return nil, errors.Join(err, f.Stop())
		}
		p.nodes, f.servers = append(p.nodes, n), append(f.servers, n.Server)
	}
	f.primary = f.servers[0]
	if err := p.whole(ctx, f.primary); err != nil {
		return nil, errors.Join(err, f.Stop())
	}
	return f, nil
}

func (p *patroni) startNode(ctx context.Context, kind Kind, found programs, root, name string) (n *node, err error) {
	n = &node{name: name}
	if n.api, err = freePort(); err != nil {
		return nil, err
	}
	if n.etcd, err = wire.Listen(strings.TrimPrefix(p.etcd.DSN, "http://")); err != nil {
		return nil, err
	}
	n.Server, err = startPrivate(ctx, inMemory(), func(folder string, port int) plan {
		python := filepath.Join(root, "run") + " usr/bin/python3.13"
		script := filepath.Join(folder, "patroni_node.py")
		made := plan{
			kind: kind, name: kind.String() + " " + name, origin: found.origin + ", " + patroniPackages.Suite,
			run: append(strings.Fields(python), script, root, folder),
			files: map[string]string{
				script:                               patroniScript,
				filepath.Join(folder, "python"):      "#!/bin/sh\nexec " + python + " \"$@\"\n",
				filepath.Join(folder, "patroni.yml"): n.config(p.scope, found, folder, port),
			},
			dsn:     strings.Replace(urlOf(kind, port), "/postgres?", "/txlock?", 1),
			answers: kind.answers, ending: syscall.SIGTERM,
		}
		if len(p.nodes) == 0 {
			made.first = kind.creates(urlOf(kind, port))
		}
		return made
	})
	if err != nil {
		return nil, errors.Join(err, n.etcd.Close())
	}
	return n, nil
}

// config is the configuration of a node. JSON is YAML, too. The times are the shortest that Patroni
// takes.
func (n *node) config(scope string, found programs, folder string, port int) string {
	type object = map[string]any
	at, api := "127.0.0.1:"+strconv.Itoa(port), "127.0.0.1:"+strconv.Itoa(n.api)
	text, _ := json.MarshalIndent(object{
		"scope": scope, "name": n.name,
		"restapi": object{"listen": api, "connect_address": api},
		// Otherwise it would ask etcd for its own address.
		"etcd3": object{"hosts": []string{n.etcd.Addr()}, "use_proxies": true},
		"bootstrap": object{
			"dcs": object{
				"ttl": 20, "loop_wait": 1, "retry_timeout": 3, "synchronous_mode": true,
				"postgresql": object{"use_pg_rewind": true, "use_slots": true},
			},
			"initdb": []any{
				object{"encoding": "UTF8"}, object{"locale": "C"}, object{"auth": "trust"}, "data-checksums",
			},
		},
		"postgresql": object{
			"listen": at, "connect_address": at, "data_dir": dataIn(folder), "bin_dir": filepath.Dir(found.server[0]),
			"pg_hba": []string{"host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"},
			"authentication": object{
				"superuser": object{"username": "postgres"}, "replication": object{"username": "postgres"},
			},
			"basebackup": []any{object{"checkpoint": "fast"}, "no-sync"},
			"parameters": object{
				"unix_socket_directories": folder, "max_connections": 200, "jit": "off",
				"dynamic_shared_memory_type": "mmap", // as in plan
			},
			"remove_data_directory_on_rewind_failure":     true,
			"remove_data_directory_on_diverged_timelines": true,
		},
	}, "", "  ") // of what is here it makes a text
	return string(text)
}

// overHTTP is the answer to a request.
func overHTTP(ctx context.Context, method, url, body string) (answer []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: %s: %s", method, url, response.Status, bytes.TrimSpace(answer))
	}
	return answer, err
}

func (n *node) ask(ctx context.Context, method, path, body string) ([]byte, error) {
	return overHTTP(ctx, method, "http://127.0.0.1:"+strconv.Itoa(n.api)+path, body)
}

// whole returns when one server leads, a standby is synchronous, and all stream. A former leader
// that starts on its old timeline will stop once more to be rewound: who then loses the leader from
// which it copies may wait for minutes.
func (p *patroni) whole(ctx context.Context, primary *Server) error {
	ctx, cancel := context.WithTimeout(ctx, 2*startUp)
	defer cancel()
	return poll(ctx, 100*time.Millisecond, func() error {
		once, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		text, err := p.nodeOf(primary).ask(once, http.MethodGet, "/cluster", "")
		if err != nil {
			return err
		}
		var cluster struct {
			Members []struct {
				Role, State string
				Timeline    int
			}
		}
		if err := json.Unmarshal(text, &cluster); err != nil {
			return err
		}
		roles, timelines := map[string]int{}, map[int]bool{}
		for _, member := range cluster.Members {
			roles[member.Role+" "+member.State]++
			timelines[member.Timeline] = true
		}
		if roles["leader running"] == 1 && roles["sync_standby streaming"] == 1 && roles["replica streaming"] == 1 &&
			len(timelines) == 1 {
			return nil
		}
		return fmt.Errorf("the cluster is not whole: %s", text)
	})
}

func (p *patroni) nodeOf(server *Server) *node {
	return p.nodes[slices.IndexFunc(p.nodes, func(n *node) bool { return n.Server == server })]
}

// asks implements flow. It asks Patroni, which says so only as long as its key in etcd lasts.
func (p *patroni) asks(server *Server) (question, error) {
	n := p.nodeOf(server)
	return question{func(ctx context.Context) (bool, error) {
		_, err := n.ask(ctx, http.MethodGet, "/primary", "")
		return err == nil, err
	}, io.NopCloser(nil)}, nil
}

// end asks Patroni to switch. An Isolated primary does not reach etcd, and Patroni shuts it down.
func (p *patroni) end(ctx context.Context, f *Fleet, way Way) error {
	n := p.nodeOf(f.primary)
	if way == Planned {
		_, err := n.ask(ctx, http.MethodPost, "/switchover", `{"leader": "`+n.name+`"}`)
		return err
	}
	n.etcd.Behave(wire.Network{Drop: true})
	ctx, cancel := context.WithTimeout(ctx, elected)
	defer cancel()
	return poll(ctx, 10*time.Millisecond, func() error {
		standby, err := answerOf(ctx, f.primary, "SELECT pg_is_in_recovery()::text")
		if err == nil && standby == "false" {
			return errors.New("it still takes writes")
		}
		return nil
	})
}

func (p *patroni) promote(ctx context.Context, f *Fleet) (*Server, error) { return f.elect(ctx) }

func (p *patroni) rejoin(ctx context.Context, f *Fleet) error {
	p.nodeOf(f.former).etcd.Behave(wire.Network{})
	if err := f.former.running(ctx); err != nil {
		return err
	}
	return p.whole(ctx, f.primary)
}

func (p *patroni) stop() (err error) {
	for _, n := range p.nodes {
		err = errors.Join(err, n.etcd.Close())
	}
	return errors.Join(err, p.etcd.Stop())
}
