package testbed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/txlock/txlock/internal/test/servers"
)

// redis is a Redis with its default durability.
var redis = servers.Software{
	Name: "Redis", Variable: "TXLOCK_REDIS",
	// redis-server is a link to a file of the package redis-tools.
	Packages: servers.Packages{Suite: "sid", Names: []string{"redis-server", "redis-tools"}, Libraries: true},
	Image:    servers.Image{Repository: "redis", Tag: "8", Port: "6379/tcp", DSN: "%s"},
	Ending:   syscall.SIGTERM, // any other signal would leave the child that saves its data
	Find:     servers.ProgramOf("redis-server"),
	Run: func(folder string, port int) servers.Run {
		return servers.Run{
			Arguments: []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", folder}, DSN: local(port),
		}
	},
	Answers: func(ctx context.Context, dsn string) error {
		return answers(talk(ctx, dsn, "PING\r\nQUIT\r\n", "+PONG"))
	},
}

// zooKeeper is a ZooKeeper of one node. It runs on the machine's Java.
var zooKeeper = servers.Software{
	Name: "ZooKeeper", Variable: "TXLOCK_ZOOKEEPER",
	Needs: []string{"java"},
	// Without libraries: Debian's package depends on a thousand jars that are not needed here.
	Packages: servers.Packages{
		Suite: "sid",
		Names: []string{"libzookeeper-java", "libslf4j-java", "libdropwizard-metrics-java", "libsnappy-java"},
	},
	Image: servers.Image{
		Repository: "zookeeper", Tag: "3.9", Port: "2181/tcp", DSN: "%s",
		Environment: []string{"ZOO_MAX_CLIENT_CNXNS=0"}, // as in zooKeeperFile
	},
	Ending: syscall.SIGTERM, // on SIGQUIT, Java only prints its threads
	Find:   zooKeeperIn,
	Run: func(folder string, port int) servers.Run {
		file := filepath.Join(folder, "zoo.cfg")
		return servers.Run{
			Arguments: []string{file}, Files: map[string]string{file: zooKeeperFile(folder, port)}, DSN: local(port),
		}
	},
	// By default, srvr is the only word that it answers.
	Answers: func(ctx context.Context, dsn string) error { return answers(talk(ctx, dsn, "srvr", "Mode:")) },
}

// zooKeeperFile is the configuration. The tick is the one of the file that ZooKeeper ships. There
// is no limit on the connections from one machine, because all clients are on this one. The
// administration page is off, because its port is fixed.
func zooKeeperFile(folder string, port int) string {
	return strings.Join([]string{
		"tickTime=2000", "dataDir=" + filepath.Join(folder, "data"), fmt.Sprintf("clientPort=%d", port),
		"clientPortAddress=127.0.0.1", "maxClientCnxns=0", "admin.enableServer=false",
	}, "\n") + "\n"
}

// zooKeeperIn returns the command line of the ZooKeeper whose jars are below root. It gets as much
// memory as ZooKeeper's own script gives it.
func zooKeeperIn(root string) ([]string, error) {
	var path []string
	for _, name := range []string{
		"zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "metrics-core", "snappy-java",
	} {
		jar := filepath.Join("/", root, "usr/share/java", name+".jar")
		if _, err := os.Stat(jar); err != nil {
			return nil, err
		}
		path = append(path, jar)
	}
	return []string{
		"java", "-Xmx1000m", "-cp", strings.Join(path, ":"), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
		"-XX:-UsePerfData", // a killed server would leave its file in /tmp
		"org.apache.zookeeper.server.quorum.QuorumPeerMain",
	}, nil
}

func local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

func answers(_ string, err error) error { return err }
