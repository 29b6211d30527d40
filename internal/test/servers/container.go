package servers

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Image is a container image and how it is run.
type Image struct {
	Repository, Tag string
	Port            string // of the container: "5432/tcp"
	Environment     []string
	Command         []string
	DSN             string // with %s for host and port
}

func (k Kind) image(options Options) Image {
	if k.Postgres() {
		return Image{
			Repository: "postgres", Tag: k.version(), Port: "5432/tcp",
			DSN:         "postgres://postgres@%s/txlock?sslmode=disable",
			Environment: []string{"POSTGRES_HOST_AUTH_METHOD=trust", "POSTGRES_DB=txlock"},
			Command:     []string{"-c", "max_connections=" + options.connections()},
		}
	}
	image := Image{
		Repository: "mysql", Tag: "9", Port: "3306/tcp", DSN: "root@tcp(%s)/txlock",
		Environment: []string{"MYSQL_ALLOW_EMPTY_PASSWORD=1", "MYSQL_DATABASE=txlock"},
		Command:     []string{"--max-connections=" + options.connections()},
	}
	if k.MariaDB() {
		image.Repository, image.Tag = "mariadb", cmp.Or(k.version(), "10.11")
		image.Environment = []string{"MARIADB_ALLOW_EMPTY_ROOT_PASSWORD=1", "MARIADB_DATABASE=txlock"}
	}
	return image
}

//go:embed container.sh
var containerScript string

// command is the script that runs a container of the image by the program of an engine.
func (i Image) command(engine string) *exec.Cmd {
	port, _, _ := strings.Cut(i.Port, "/")
	line := []string{"-c", containerScript, "container.sh", engine, i.Port, "--publish", "127.0.0.1::" + port}
	for _, variable := range i.Environment {
		line = append(line, "--env", variable)
	}
	c := exec.Command("sh", append(append(line, i.Repository+":"+i.Tag), i.Command...)...)
	c.SysProcAttr = ownGroup()
	return c
}

// startContainer starts a container, if a container engine answers.
func startContainer(ctx context.Context, name string, image Image,
	answers func(ctx context.Context, dsn string) error,
) (*Server, error) {
	engine, err := containerEngine(ctx)
	if err != nil {
		return nil, fmt.Errorf("no container engine answers: %w", err)
	}
	address, stop, err := image.run(ctx, engine)
	if err != nil {
		return nil, err
	}
	server := &Server{
		Name: name, DSN: fmt.Sprintf(image.DSN, address), Origin: "container " + image.Repository + ":" + image.Tag,
		stop: stop, answers: answers,
	}
	if err := probe(server.answering).wait(ctx); err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return server, nil
}

// containerEngine is the program of an engine that answers.
func containerEngine(ctx context.Context) (program string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, program := range []string{"docker", "podman"} {
		text, failed := exec.CommandContext(ctx, program, "ps", "--quiet").CombinedOutput()
		if failed == nil {
			return program, nil
		}
		err = errors.Join(err, fmt.Errorf("%s: %w: %s", program, failed, lastLines(text)))
	}
	return "", err
}

// run runs a container until stop is called, or this process dies.
func (i Image) run(ctx context.Context, engine string) (address string, stop func() error, err error) {
	script := i.command(engine)
	input, err := script.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	output, err := script.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	var complaints bytes.Buffer
	script.Stderr = &complaints
	if err := script.Start(); err != nil {
		return "", nil, err
	}
	stop = func() error {
		_ = input.Close()
		_ = script.Wait() // its code is that of the end of its input
		return nil
	}
	unwatch := context.AfterFunc(ctx, func() { _ = input.Close() })
	defer unwatch()
	lines := bufio.NewScanner(output)
	if !lines.Scan() {
		_ = stop()
		return "", nil, errors.Join(ctx.Err(), fmt.Errorf("container %s:%s: %s", i.Repository, i.Tag,
			lastLines(complaints.Bytes())))
	}
	return lines.Text(), stop, nil
}
