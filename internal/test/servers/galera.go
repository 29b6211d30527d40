package servers

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Galera is a cluster of three nodes of MariaDB, which all take writes. The primary of a Fleet is
// the node that the next End hits. All nodes are private instances, even if an address is given.
type Galera struct {
	nodes   []*Server
	mu      sync.Mutex
	primary *Server
	former  *Server // since the last End
}

//go:embed galera_sst.sh
var galeraSST string

// StartGalera starts a cluster.
func StartGalera(ctx context.Context, kind Kind) (*Galera, error) {
	if !kind.MariaDB() {
		return nil, fmt.Errorf("a Galera cluster of %v is not supported", kind)
	}
	found, provider, err := galeraPrograms(ctx, kind)
	if err != nil {
		return nil, err
	}
	const size = 3
	var at [size]int
	all := ""
	for i := range at {
		if at[i], err = freePort(); err != nil {
			return nil, err
		}
		all += ",127.0.0.1:" + strconv.Itoa(at[i])
	}
	g := &Galera{}
	for i := range at {
		node, err := startGaleraNode(ctx, found, kind, provider, at[i], i == 0, all[1:])
		if err != nil {
			return nil, errors.Join(err, g.Stop())
		}
		g.nodes = append(g.nodes, node)
	}
	g.primary = g.nodes[0]
	if err := g.whole(ctx); err != nil {
		return nil, errors.Join(err, g.Stop())
	}
	return g, nil
}

// startGaleraNode starts a node. The one that founds the cluster joins it like the others when it
// is started again.
func startGaleraNode(ctx context.Context, found programs, kind Kind, provider string, at int, first bool, all string) (
	*Server, error,
) {
	ist, err := freePort()
	if err != nil {
		return nil, err
	}
	settings := append(galeraNode(provider, "127.0.0.1:"+strconv.Itoa(at), all,
		"ist.recv_addr=127.0.0.1:"+strconv.Itoa(ist)),
		"--wsrep-sst-method=copy", "--wsrep-node-name=node"+strconv.Itoa(at))
	var join []string
	node, err := startPrivate(ctx, inMemory(), func(folder string, port int) plan {
		made := found.plan(folder, port, kind, Options{Settings: settings})
		made.name += " node of Galera"
		made.answers = ready
		script := filepath.Join(folder, "wsrep_sst_copy")
		made.files = map[string]string{script: galeraSST}
		// mariadbd looks for the script in the path, and starts it by its name.
		made.run = append([]string{
			"/bin/sh", "-c", `chmod +x "$1"; PATH=$2:$PATH; shift 2; exec "$@"`, "sh", script, folder,
		}, made.run...)
		join = slices.Clone(made.run)
		if first {
			made.run = append(made.run, "--wsrep-new-cluster")
		} else {
			made.first = func(ctx context.Context) error { return ready(ctx, made.dsn) }
		}
		return made
	})
	if err == nil {
		node.own.run = join
	}
	return node, err
}

// isReady asks whether a node takes statements. One that does not answers such questions alone.
const isReady = "SELECT VARIABLE_VALUE = 'ON' FROM information_schema.global_status WHERE VARIABLE_NAME = 'wsrep_ready'"

// ready returns nil if a node takes statements.
func ready(ctx context.Context, dsn string) error {
	return on(&Server{Kind: MariaDB, DSN: dsn}, func(a asks) error {
		answer, err := a.text(ctx, isReady)
		if err == nil && answer != "1" {
			err = errors.New("the node is not ready")
		}
		return err
	})
}

// whole returns when all nodes have caught up with each other.
func (g *Galera) whole(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, elected)
	defer cancel()
	wanted := strconv.Itoa(len(g.nodes)) + " Synced"
	return poll(ctx, 20*time.Millisecond, func() error {
		for _, node := range g.nodes {
			err := on(node, func(a asks) error {
				once, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
				defer cancel()
				state, err := a.text(once, "SELECT GROUP_CONCAT(VARIABLE_VALUE ORDER BY VARIABLE_NAME SEPARATOR ' ') "+
					"FROM information_schema.global_status WHERE VARIABLE_NAME IN ('wsrep_cluster_size', "+
					"'wsrep_local_state_comment')")
				if err == nil && state != wanted {
					err = errors.New("it says " + state)
				}
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: the cluster is not whole: %w", node.DSN, err)
			}
		}
		return nil
	})
}

// Primary is the node that the next End hits.
func (g *Galera) Primary() *Server {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.primary
}

// Servers are all nodes, in an order that stays.
func (g *Galera) Servers() []*Server { return g.nodes }

func (g *Galera) asks(server *Server) (question, error) {
	return byQuery(server.Kind, server.DSN, isReady)
}

// End ends the node. A Planned end shuts it down. An Isolated one reaches no other, until it has
// given up.
func (g *Galera) End(ctx context.Context, way Way) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.former = g.primary
	switch way {
	case Killed:
		return g.former.Kill()
	case Stopped:
		return g.former.Pause()
	case Isolated:
		return on(g.former, func(a asks) error {
			if err := a.do(ctx, isolate+"1'"); err != nil {
				return err
			}
			return a.until(ctx, "SELECT NOT ("+isReady+")")
		})
	}
	return g.former.toProcess(func(p *process) error { return p.end(syscall.SIGTERM) })
}

// isolate is a setting of Galera's own tests: the node drops all connections to others, and makes
// none.
const isolate = "SET GLOBAL wsrep_provider_options = 'gmcast.isolate="

// Promote returns when another node takes writes without the one that has ended.
func (g *Galera) Promote(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := g.nodes[(slices.Index(g.nodes, g.former)+1)%len(g.nodes)]
	g.primary = next
	return on(next, func(a asks) error {
		return a.until(ctx, "SELECT COUNT(*) = 2 FROM information_schema.global_status WHERE VARIABLE_NAME = "+
			"'wsrep_cluster_size' AND VARIABLE_VALUE = '"+strconv.Itoa(len(g.nodes)-1)+"' OR VARIABLE_NAME = "+
			"'wsrep_ready' AND VARIABLE_VALUE = 'ON'")
	})
}

// Rejoin makes the node one of the cluster again.
func (g *Galera) Rejoin(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = g.former.Continue() // one that was not stopped goes on as it is
	if g.former.toProcess(func(*process) error { return nil }) == nil {
		err := on(g.former, func(a asks) error { return a.do(ctx, isolate+"0'") })
		if err != nil {
			return err
		}
	} else if err := g.former.Restart(ctx); err != nil {
		return err
	}
	return g.whole(ctx)
}

// Stop stops all nodes and removes their data.
func (g *Galera) Stop() (err error) {
	for _, node := range g.nodes {
		err = errors.Join(err, node.Stop())
	}
	return err
}
