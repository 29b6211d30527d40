package servers

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
)

// containerLife is when a container that nobody stopped, because this process was killed, ends by itself.
const containerLife = time.Hour

// startContainer starts a container, if a container engine answers.
func startContainer(ctx context.Context, kind Kind, _ Options) (*Server, error) {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return nil, err
	}
	pool.Client.SetTimeout(3 * time.Second)
	if err := pool.Client.Ping(); err != nil {
		return nil, fmt.Errorf("no container engine answers: %w", err)
	}
	pool.Client.SetTimeout(0)
	image, tag, port, driver := "postgres", strings.TrimPrefix(kind.String(), "PostgreSQL "), "5432/tcp", "pgx"
	environment := []string{"POSTGRES_HOST_AUTH_METHOD=trust", "POSTGRES_DB=txlock"}
	dsn := "postgres://postgres@%s/txlock?sslmode=disable"
	switch kind {
	case MySQL:
		image, tag = "mysql", "9"
	case MariaDB:
		image, tag = "mariadb", "10.11"
	}
	if image != "postgres" {
		port, driver = "3306/tcp", "mysql"
		environment = []string{"MYSQL_ALLOW_EMPTY_PASSWORD=1", "MARIADB_ALLOW_EMPTY_ROOT_PASSWORD=1", "MYSQL_DATABASE=txlock", "MARIADB_DATABASE=txlock"}
		dsn = "root@tcp(%s)/txlock"
	}
	container, err := pool.RunWithOptions(&dockertest.RunOptions{Repository: image, Tag: tag, Env: environment},
		func(host *docker.HostConfig) { host.AutoRemove = true })
	if err != nil {
		return nil, err
	}
	stop := func() error { return pool.Purge(container) }
	_ = container.Expire(uint(containerLife.Seconds()))
	dsn = fmt.Sprintf(dsn, container.GetHostPort(port))
	db, err := sql.Open(driver, dsn)
	if err == nil {
		defer db.Close()
		pool.MaxWait = startUp
		err = pool.Retry(func() error { return db.PingContext(ctx) })
	}
	if err != nil {
		_ = stop()
		return nil, err
	}
	return &Server{Kind: kind, Name: kind.String(), DSN: dsn, Origin: "container " + image + ":" + tag, stop: stop}, nil
}
