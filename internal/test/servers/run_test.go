package servers

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// closer records on Close whether its server still runs.
type closer struct {
	server *Server
	closed error
}

func (c *closer) Close() error {
	c.closed = c.server.Kind.answers(context.Background(), c.server.DSN)
	return c.closed
}

func TestRunOn(t *testing.T) {
	fails := errors.New("no table")
	for _, c := range []struct {
		name      string
		prepare   []error
		run       func(interrupt context.CancelFunc) int
		code, ran int
	}{
		{"the tests' code", []error{nil, nil}, func(context.CancelFunc) int { return 3 }, 3, 1},
		{"preparation fails", []error{nil, fails}, func(context.CancelFunc) int { return 0 }, 1, 0},
		{"ctrl-C", []error{nil, nil}, func(interrupt context.CancelFunc) int { interrupt(); select {} }, 130, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(context.Background())
			defer interrupt()
			var prepared []*closer
			ran := make(chan struct{}, 1)
			code := RunOn(ctx, []Kind{Postgres(), Postgres()}, func(server *Server) (io.Closer, error) {
				prepared = append(prepared, &closer{server, errors.New("not closed")})
				return prepared[len(prepared)-1], c.prepare[len(prepared)-1]
			}, func() int {
				ran <- struct{}{}
				return c.run(interrupt)
			})
			require.Equal(t, c.code, code)
			require.Len(t, ran, c.ran)
			require.Len(t, prepared, 2)
			for _, p := range prepared {
				require.NoError(t, p.closed, "closed while the server runs")
				if os.Getenv(Postgres().variable()) == "" {
					gone(t, p.server.DSN)
				}
			}
		})
	}
}
