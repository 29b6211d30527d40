package servers

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// StartNode starts a cluster of one node in which every node takes writes: a Galera cluster of
// MariaDB, or a replication group of MySQL in multi-primary mode. It is a private instance, even if
// an address is given.
func StartNode(ctx context.Context, kind Kind) (*Server, error) {
	if kind != MySQL && kind != MariaDB {
		return nil, fmt.Errorf("a cluster of %v is not supported", kind)
	}
	found, err := privatePrograms(ctx, kind)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	at := "127.0.0.1:" + strconv.Itoa(port) // for traffic between nodes
	settings := append(memberSettings(1, at, at), "--loose-group-replication-bootstrap-group=ON",
		"--loose-group-replication-single-primary-mode=OFF")
	if kind == MariaDB {
		var provider string
		if found, provider, err = galeraPrograms(ctx, kind); err != nil {
			return nil, err
		}
		settings = galeraNode(provider, at, "")
	}
	return found.start(ctx, kind, Options{Settings: settings})
}

// galeraNode returns settings of a MariaDB that is a node of a Galera cluster, which it founds if
// no others are named.
func galeraNode(provider, at, others string, options ...string) []string {
	options = append(options, "gmcast.listen_addr=tcp://"+at, "gcache.size=16M")
	return []string{
		"--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--wsrep-on=ON", "--wsrep-provider=" + provider,
		"--wsrep-cluster-name=txlock",
		"--wsrep-cluster-address=gcomm://" + others, "--wsrep-node-address=" + at,
		"--wsrep-provider-options=" + strings.Join(options, ";"),
	}
}

// galeraPrograms finds programs, and the library of Galera with them.
func galeraPrograms(ctx context.Context, kind Kind) (found programs, provider string, err error) {
	if found, err = privatePrograms(ctx, kind); err != nil {
		return found, "", err
	}
	if provider, err = found.galera(); err != nil { // this MariaDB was installed without it
		if found, err = unpackedPrograms(ctx, kind); err == nil {
			provider, err = found.galera()
		}
	}
	return found, provider, err
}

// galera finds the library of Galera.
func (p programs) galera() (string, error) {
	for _, folder := range []string{"/usr/lib/galera", "/usr/lib64/galera-4", "/usr/lib64/galera"} {
		path := filepath.Join(p.root, folder, "libgalera_smm.so")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no Galera")
}

// galera is the flow of a cluster of three nodes of MariaDB, which all take writes.
type galera struct{}

//go:embed galera_sst.sh
var galeraSST string

// StartGalera starts a cluster of three nodes of MariaDB, which all take writes.
func StartGalera(ctx context.Context, kind Kind) (*Fleet, error) {
	if !kind.MariaDB() {
		return nil, fmt.Errorf("a Galera cluster of %v is not supported", kind)
	}
	found, provider, err := galeraPrograms(ctx, kind)
	if err != nil {
		return nil, err
	}
	at, all, err := threeAddresses()
	if err != nil {
		return nil, err
	}
	f := &Fleet{Kind: kind, Synchronous: true, flow: galera{}}
	for i := range at {
		node, err := startGaleraNode(ctx, found, kind, provider, at[i], i == 0, all)
		if err != nil {
			return nil, errors.Join(err, f.Stop())
		}
		f.servers = append(f.servers, node)
	}
	f.primary = f.servers[0]
	if err := synced(ctx, f.servers); err != nil {
		return nil, errors.Join(err, f.Stop())
	}
	return f, nil
}

// startGaleraNode starts a node. The one that founds the cluster joins it like the others when it
// is started again.
func startGaleraNode(ctx context.Context, found programs, kind Kind, provider, at string, first bool, all string) (
	*Server, error,
) {
	ist, err := freePort()
	if err != nil {
		return nil, err
	}
	settings := append(galeraNode(provider, at, all, "ist.recv_addr=127.0.0.1:"+strconv.Itoa(ist)),
		"--wsrep-sst-method=copy", "--wsrep-node-name=node"+at)
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
	answer, err := answerOf(ctx, &Server{Kind: MariaDB, DSN: dsn}, isReady)
	if err == nil && answer != "1" {
		err = errors.New("the node is not ready")
	}
	return err
}

// synced returns when all nodes have caught up with each other.
func synced(ctx context.Context, nodes []*Server) error {
	ctx, cancel := context.WithTimeout(ctx, elected)
	defer cancel()
	wanted := strconv.Itoa(len(nodes)) + " Synced"
	return poll(ctx, 20*time.Millisecond, func() error {
		for _, node := range nodes {
			once, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			state, err := answerOf(once, node, "SELECT GROUP_CONCAT(VARIABLE_VALUE ORDER BY VARIABLE_NAME "+
				"SEPARATOR ' ') FROM information_schema.global_status WHERE VARIABLE_NAME IN ('wsrep_cluster_size', "+
				"'wsrep_local_state_comment')")
			cancel()
			if err == nil && state != wanted {
				err = errors.New("it says " + state)
			}
			if err != nil {
				return fmt.Errorf("%s: the cluster is not whole: %w", node.DSN, err)
			}
		}
		return nil
	})
}

func (galera) asks(server *Server) (question, error) {
	return byQuery(server.Kind, server.DSN, isReady)
}

// isolate is a setting of Galera's own tests: the node drops all connections to others, and makes
// none.
const isolate = "SET GLOBAL wsrep_provider_options = 'gmcast.isolate="

func (galera) end(ctx context.Context, f *Fleet, way Way) error {
	if way == Planned {
		return f.primary.toProcess(func(p *process) error { return p.end(syscall.SIGTERM) })
	}
	return on(f.primary, func(a asks) error {
		if err := a.do(ctx, isolate+"1'"); err != nil {
			return err
		}
		return a.until(ctx, "SELECT NOT ("+isReady+")")
	})
}

// promote returns when the next node takes writes without the one that has ended.
func (galera) promote(ctx context.Context, f *Fleet) (*Server, error) {
	next := f.servers[(slices.Index(f.servers, f.primary)+1)%len(f.servers)]
	return next, on(next, func(a asks) error {
		return a.until(ctx, "SELECT COUNT(*) = 2 FROM information_schema.global_status WHERE VARIABLE_NAME = "+
			"'wsrep_cluster_size' AND VARIABLE_VALUE = '"+strconv.Itoa(len(f.servers)-1)+"' OR VARIABLE_NAME = "+
			"'wsrep_ready' AND VARIABLE_VALUE = 'ON'")
	})
}

func (galera) rejoin(ctx context.Context, f *Fleet) (err error) {
	if f.former.runs() {
		err = tell(ctx, f.former, isolate+"0'")
	} else {
		err = f.former.Restart(ctx)
	}
	if err != nil {
		return err
	}
	return synced(ctx, f.servers)
}

func (galera) stop() error { return nil }
