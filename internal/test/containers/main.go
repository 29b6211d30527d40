// Command containers runs one container for the process that started it.
//
// It reads a Request from its standard input, one line of JSON, and answers on its standard output
// with a line of JSON, a Response: where the container listens, or why there is none. The container
// is removed when the standard input ends or a signal comes, so that none is left when the other
// process dies.
//
// It is a program in a module of its own so that the libraries of container engines are in nobody
// else's go.sum. internal/test/servers runs it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Request says what to run.
type Request struct {
	Repository  string   `json:"repository"`
	Tag         string   `json:"tag"`
	Port        string   `json:"port"` // of the container: "5432/tcp"
	Environment []string `json:"environment"`
	Command     []string `json:"command"`
}

// Response is the answer to a Request.
type Response struct {
	Address string `json:"address,omitempty"` // host:port on this machine
	Error   string `json:"error,omitempty"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, os.Stdin, os.Stdout, start); err != nil {
		fmt.Fprintln(os.Stderr, "containers:", err)
		stop()
		os.Exit(1)
	}
}

// starter starts a container. It gives up when ctx ends.
type starter func(ctx context.Context, request Request) (address string, remove func() error, err error)

// serve runs one container until the input ends or ctx does. It returns when the container is gone.
func serve(ctx context.Context, input io.Reader, output io.Writer, start starter) error {
	lines := bufio.NewReader(input)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	var request Request
	if err := json.Unmarshal(line, &request); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	ctx, ended := context.WithCancel(ctx)
	defer ended()
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		ended()
	}()
	address, remove, err := start(ctx, request)
	if err != nil {
		return errors.Join(err, json.NewEncoder(output).Encode(Response{Error: err.Error()}))
	}
	if err := json.NewEncoder(output).Encode(Response{Address: address}); err != nil {
		return errors.Join(err, remove())
	}
	<-ctx.Done()
	return remove()
}
