package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
