package servers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Image is a container image and how it is run.
type Image struct {
	Repository  string   `json:"repository"`
	Tag         string   `json:"tag"`
	Port        string   `json:"port"` // of the container: "5432/tcp"
	Environment []string `json:"environment"`
	Command     []string `json:"command"`
	DSN         string   `json:"-"` // with %s for host and port
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

// startContainer starts a container, if a container engine answers.
func startContainer(ctx context.Context, name string, image Image,
	answers func(ctx context.Context, dsn string) error,
) (*Server, error) {
	if err := engineAnswers(ctx); err != nil {
		return nil, fmt.Errorf("no container engine answers: %w", err)
	}
	program, err := containerProgram()
	if err != nil {
		return nil, err
	}
	address, stop, err := runContainer(ctx, program, image)
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

// engineAnswers pings the container engine at DOCKER_HOST, or at the usual socket. No library is
// needed for that.
func engineAnswers(ctx context.Context) error {
	host := os.Getenv("DOCKER_HOST")
	if host == "" {
		host = "unix:///var/run/docker.sock"
	}
	at, err := url.Parse(host)
	if err != nil {
		return err
	}
	network, address := "tcp", at.Host
	if at.Scheme == "unix" {
		network, address = "unix", at.Path
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, address)
	}
	if os.Getenv("DOCKER_CERT_PATH") != "" && network == "tcp" { // speaks TLS: that it listens is all one can see
		conn, err := dial(ctx, "", "")
		if err != nil {
			return err
		}
		return conn.Close()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine/_ping", nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /_ping: %s", response.Status)
	}
	return nil
}

// containerProgram is the program internal/test/containers. It is a module of its own, with the
// libraries for containers, and is built when it is needed.
func containerProgram() (*exec.Cmd, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/txlock/txlock").Output()
	folder := filepath.Join(strings.TrimSpace(string(root)), "internal", "test", "containers")
	if err == nil {
		_, err = os.Stat(filepath.Join(folder, "go.mod"))
	}
	if err != nil {
		return nil, fmt.Errorf("containers are started from the sources of txlock: %w", err)
	}
	program := exec.Command("go", "run", ".")
	program.Dir = folder
	program.Env = append(os.Environ(), "GOWORK=off")
	return program, nil
}

// runContainer has the program run a container until stop is called. The program removes the
// container when its standard input ends, so also when this process dies.
func runContainer(ctx context.Context, program *exec.Cmd, image Image) (address string, stop func() error, err error) {
	request, err := json.Marshal(image)
	if err != nil {
		return "", nil, err
	}
	input, err := program.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	output, err := program.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	var complaints bytes.Buffer
	program.Stderr = &complaints
	program.SysProcAttr = ownGroup()
	if err := program.Start(); err != nil {
		return "", nil, err
	}
	stop = func() error {
		_ = input.Close()
		if err := program.Wait(); err != nil {
			return fmt.Errorf("container %s:%s: %w: %s", image.Repository, image.Tag, err,
				lastLines(complaints.Bytes()))
		}
		return nil
	}
	unwatch := context.AfterFunc(ctx, func() { _ = input.Close() }) // the program gives up
	defer unwatch()
	var response struct{ Address, Error string }
	_, err = input.Write(append(request, '\n'))
	if err == nil {
		err = json.NewDecoder(output).Decode(&response)
	}
	if err == nil && response.Address == "" {
		err = errors.New(response.Error)
	}
	if err != nil {
		return "", nil, errors.Join(ctx.Err(), err, stop())
	}
	return response.Address, stop, nil
}
