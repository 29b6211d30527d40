package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// planShipped is a Redis, ZooKeeper or etcd as it ships: how durable it is, above all, is its own
// default. Only what it needs to run privately is set.
func (p programs) planShipped(folder string, port int, kind Kind) (plan, error) {
	at := strconv.Itoa(port)
	made := plan{kind: kind, name: kind.String(), origin: p.origin, run: slices.Clone(p.server), dsn: "127.0.0.1:" + at}
	switch kind {
	case Redis:
		made.run = append(made.run, "--bind", "127.0.0.1", "--port", at, "--dir", folder)
	case ZooKeeper:
		file := filepath.Join(folder, "zoo.cfg")
		made.run = append(made.run, file)
		return made, configure(file, zooKeeperFile(folder, port))
	case Etcd:
		made.dsn = "http://" + made.dsn
		made.run = append(made.run, "--data-dir", dataIn(folder), "--listen-client-urls", made.dsn,
			// any port: it has no peers
			"--advertise-client-urls", made.dsn, "--listen-peer-urls", "http://127.0.0.1:0")
	}
	return made, nil
}

// zooKeeperFile is the configuration. The tick is that of the file that ZooKeeper ships. All
// clients come from this machine, so there is no limit for one machine. The administration page is
// off: its port is fixed.
func zooKeeperFile(folder string, port int) string {
	return strings.Join([]string{
		"tickTime=2000", "dataDir=" + dataIn(folder), fmt.Sprintf("clientPort=%d", port), "clientPortAddress=127.0.0.1",
		"maxClientCnxns=0", "admin.enableServer=false",
	}, "\n") + "\n"
}

// jarFolder is where Debian's packages have jars, below the root.
const jarFolder = "usr/share/java"

// zooKeeperIn is the command line of the ZooKeeper whose jars are in a folder, with the memory that
// its own script gives it.
func zooKeeperIn(folder string) ([]string, error) {
	program, err := java()
	if err != nil {
		return nil, err
	}
	var path []string
	for _, name := range []string{
		"zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "metrics-core",
		"snappy-java",
	} {
		jar := filepath.Join(folder, name+".jar")
		if _, err := os.Stat(jar); err != nil {
			return nil, err
		}
		path = append(path, jar)
	}
	return []string{
		program, "-Xmx1000m", "-cp", strings.Join(path, ":"), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
		"-XX:-UsePerfData", // whose file below /tmp would be left of a killed server
		"org.apache.zookeeper.server.quorum.QuorumPeerMain",
	}, nil
}

// java finds the Java of the machine.
func java() (string, error) {
	path, err := exec.LookPath("java")
	if err != nil {
		return "", fmt.Errorf("ZooKeeper needs Java, install a JRE: %w", err)
	}
	return path, nil
}
