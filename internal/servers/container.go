package servers

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
)

// containerLife is when a container that nobody stopped, because this process was killed, ends by
// itself.
const containerLife = time.Hour

// image is how a container of a kind is run.
type image struct {
	repository, tag, port string
	environment, command  []string
	dsn                   string // with %s for host and port
}

func (k Kind) image(options Options) image {
	mysql := image{
		port: "3306/tcp", dsn: "root@tcp(%s)/txlock", command: []string{"--max-connections=" + options.connections()},
		environment: []string{
			"MYSQL_ALLOW_EMPTY_PASSWORD=1", "MARIADB_ALLOW_EMPTY_ROOT_PASSWORD=1", "MYSQL_DATABASE=txlock",
			"MARIADB_DATABASE=txlock",
		},
	}
	switch k {
	case MySQL:
		mysql.repository, mysql.tag = "mysql", "9"
		return mysql
	case MariaDB:
		mysql.repository, mysql.tag = "mariadb", "10.11"
		return mysql
	case Redis:
		return image{repository: "redis", tag: "8", port: "6379/tcp", dsn: "%s"}
	case ZooKeeper: // see zooKeeperFile
		return image{
			repository: "zookeeper", tag: "3.9", port: "2181/tcp", dsn: "%s",
			environment: []string{"ZOO_MAX_CLIENT_CNXNS=0"},
		}
	case Etcd: // has no tag for the newest of a series
		return image{
			repository: "gcr.io/etcd-development/etcd", tag: "v3.6.12", port: "2379/tcp", dsn: "http://%s",
			command: []string{
				"/usr/local/bin/etcd", "--listen-client-urls", "http://0.0.0.0:2379", "--advertise-client-urls",
				"http://0.0.0.0:2379",
			},
		}
	}
	return image{
		repository: "postgres", tag: strings.TrimPrefix(k.String(), "PostgreSQL "), port: "5432/tcp",
		dsn:         "postgres://postgres@%s/txlock?sslmode=disable",
		environment: []string{"POSTGRES_HOST_AUTH_METHOD=trust", "POSTGRES_DB=txlock"},
		command:     []string{"-c", "max_connections=" + options.connections()},
	}
}

// startContainer starts a container, if a container engine answers.
func startContainer(ctx context.Context, kind Kind, options Options) (*Server, error) {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return nil, err
	}
	pool.Client.SetTimeout(3 * time.Second)
	if err := pool.Client.Ping(); err != nil {
		return nil, fmt.Errorf("no container engine answers: %w", err)
	}
	pool.Client.SetTimeout(0)
	image := kind.image(options)
	container, err := pool.RunWithOptions(&dockertest.RunOptions{
		Repository: image.repository, Tag: image.tag, Env: image.environment, Cmd: image.command,
	}, func(host *docker.HostConfig) { host.AutoRemove = true })
	if err != nil {
		return nil, err
	}
	stop := func() error { return pool.Purge(container) }
	_ = container.Expire(uint(containerLife.Seconds()))
	dsn := fmt.Sprintf(image.dsn, container.GetHostPort(image.port))
	if err := kind.answers(dsn).wait(ctx); err != nil {
		_ = stop()
		return nil, err
	}
	return &Server{
		Kind: kind, Name: kind.String(), DSN: dsn, Origin: "container " + image.repository + ":" + image.tag,
		stop: stop,
	}, nil
}
