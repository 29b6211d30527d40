package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const request = `{"repository":"postgres","tag":"18","port":"5432/tcp","environment":["A=b"],"command":["-c"]}` + "\n"

// container is one that is not really run.
type container struct {
	asked   Request
	removed chan struct{}
}

func (c *container) start(_ context.Context, asked Request) (string, func() error, error) {
	c.asked = asked
	return "127.0.0.1:1", func() error { close(c.removed); return nil }, nil
}

func TestContainerIsRemovedAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(input io.Closer, signal func()){
		"of the input": func(input io.Closer, _ func()) { _ = input.Close() },
		"by a signal":  func(_ io.Closer, signal func()) { signal() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, signal := context.WithCancel(context.Background())
			defer signal()
			input, asks := io.Pipe()
			answers, output := io.Pipe()
			c := &container{removed: make(chan struct{})}
			done := make(chan error, 1)
			go func() { done <- serve(ctx, input, output, c.start) }()
			_, err := io.WriteString(asks, request)
			require.NoError(t, err)
			line, err := bufio.NewReader(answers).ReadBytes('\n')
			require.NoError(t, err)
			var response Response
			require.NoError(t, json.Unmarshal(line, &response))
			require.Equal(t, Response{Address: "127.0.0.1:1"}, response)
			require.Equal(t, Request{"postgres", "18", "5432/tcp", []string{"A=b"}, []string{"-c"}}, c.asked)
			select {
			case <-c.removed:
				t.Fatal("it is removed too early")
			default:
			}
			end(asks, signal)
			require.NoError(t, <-done)
			<-c.removed
		})
	}
}

func TestStartIsGivenUpWhenTheInputEnds(t *testing.T) {
	var output strings.Builder
	err := serve(context.Background(), strings.NewReader(request), &output,
		func(ctx context.Context, _ Request) (string, func() error, error) {
			<-ctx.Done()
			return "", nil, ctx.Err()
		})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, `{"error":"context canceled"}`+"\n", output.String())
}

func TestWhoCannotBeAnsweredLeavesNoContainer(t *testing.T) {
	gone, output := io.Pipe()
	require.NoError(t, gone.Close())
	c := &container{removed: make(chan struct{})}
	require.ErrorIs(t, serve(context.Background(), strings.NewReader(request), output, c.start), io.ErrClosedPipe)
	<-c.removed
}

func TestRequestThatIsNone(t *testing.T) {
	never := func(context.Context, Request) (string, func() error, error) { panic("bug: started") }
	require.ErrorIs(t, serve(context.Background(), strings.NewReader(""), io.Discard, never), io.EOF)
	var syntax *json.SyntaxError
	err := serve(context.Background(), strings.NewReader("hello\n"), io.Discard, never)
	require.True(t, errors.As(err, &syntax), err)
}

func TestNoEngine(t *testing.T) {
	t.Setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
	_, _, err := start(context.Background(), Request{Repository: "postgres", Tag: "18", Port: "5432/tcp"})
	require.ErrorContains(t, err, "cannot connect")
}
