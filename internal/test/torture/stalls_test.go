package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/servers"
)

// A server that the machine does not run answers nobody. What the checker makes of such a stall is
// server is not run for a while, and answers nobody.
func TestStoppedServerIsReported(t *testing.T) {
	const stall = 500 * time.Millisecond
	server, err := servers.Start(context.Background(), servers.Postgres(), servers.Options{
		Settings: []string{"-c", "autovacuum=off"}, // private, so that it may be stopped
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	watched, err := openDatabase(server.Kind, server.DSN)
	require.NoError(t, err)

	longest := make(chan time.Duration, 1)
	longest <- 0
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		watchServer(watched.db, func(from, to int64) {
			longest <- max(<-longest, time.Duration(to-from))
		}, stop)
	}()
	t.Cleanup(func() { close(stop); <-ended })
	require.NoError(t, watched.db.Ping())
	require.NoError(t, server.Pause())
	time.Sleep(stall) // the length of the stall, which orders nothing
	require.NoError(t, server.Continue())
	require.Eventually(t, func() bool {
		seen := <-longest
		longest <- seen
		return seen >= stall-10*tick
	}, 10*time.Second, tick)
}
