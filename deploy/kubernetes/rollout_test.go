//go:build unix

package kubernetes_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
	"github.com/txlock/txlock/internal/test/wire"
)

var (
	leader, command string // the paths of the Deployment's program, and of txlock
	engines         []*servers.Server
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	folder, err := os.MkdirTemp("", "txlock-kubernetes")
	if err == nil {
		defer os.RemoveAll(folder)
		leader, err = build(ctx, folder, "examples/leader")
	}
	if err == nil {
		command, err = build(ctx, folder, "cmd/txlock")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	kinds := []servers.Kind{servers.Postgres18, servers.MySQL, servers.MariaDB}
	return servers.RunOn(kinds, func(s *servers.Server) (io.Closer, error) {
		engines = append(engines, s)
		return nil, install(ctx, s)
	}, m.Run)
}

// build builds a program of the tree, as users do: without the race detector.
func build(ctx context.Context, folder, program string) (string, error) {
	path := filepath.Join(folder, filepath.Base(program))
	c := exec.CommandContext(ctx, "go", "build", "-o", path, ".")
	c.Dir, c.Env = filepath.Join("..", "..", program), append(os.Environ(), "GOWORK=") // that of its own folder
	if output, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", program, err, output)
	}
	return path, nil
}

func install(ctx context.Context, s *servers.Server) error {
	c := exec.CommandContext(ctx, command, "install", "--slots", "512")
	c.Env = append(os.Environ(), "TXLOCK_DSN="+s.URL())
	if output, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", s.Name, err, output)
	}
	return nil
}

// eachEngine runs the tests of an engine one after the other: all pods of all tests campaign in the
// same election.
func eachEngine(t *testing.T, test func(t *testing.T, s *servers.Server)) {
	for _, s := range engines {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			test(t, s)
		})
	}
}

// Three replicas are updated again and again. Each rollout ends, no two lead at one time, and
// nobody leads for little more than the fifth of a second that a new leader waits.
func TestRollingUpdate(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *servers.Server) {
		k := newKubelet(t, 30*time.Second, func(int) string { return s.DSN })
		pods := []*pod{k.start(), k.start(), k.start()}
		rollouts := tier.Pick(1, 3, 50)
		for range rollouts {
			k.leading()
			k.rollOut(pods)
		}
		k.leading()
		gaps := k.gaps()
		// The pod that leads is among those which a rollout ends.
		require.GreaterOrEqual(t, len(gaps), rollouts)
		t.Logf("%d rollouts, %d leaders: nobody led for %v (median), %v (p99), %v (longest)", rollouts, len(k.terms),
			percentile(gaps, 50), percentile(gaps, 99), gaps[len(gaps)-1])
		require.Less(t, percentile(gaps, 50), atOnce)
	})
}

// atOnce is far below a lease of 30 s. A loaded machine is no reason to be red: the figures are in
// the log.
const atOnce = 5 * time.Second

// percentile is of what is in order, by nearest rank.
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[(len(sorted)*p+99)/100-1].Round(100 * time.Microsecond)
}

// The container of the leader is killed, as one is that has used up its memory, or whose node's
// power is cut while its kernel still says goodbye.
func TestKilled(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *servers.Server) {
		k := newKubelet(t, 30*time.Second, func(int) string { return s.DSN })
		for range 2 {
			k.start()
		}
		for range tier.Pick(1, 3, 20) {
			was := k.leading()
			killed := time.Now()
			require.NoError(t, was.pod.Process.Kill())
			<-was.pod.ended
			k.end(was.pod, was.number, killed) // it could not say so itself
			k.next(was)
			k.start()
		}
		gaps := k.gaps()
		t.Logf("%d kills: nobody led for %v (median), %v (longest)", len(gaps), percentile(gaps, 50), gaps[len(gaps)-1])
		require.Less(t, percentile(gaps, 50), atOnce)
	})
}

// The node of the leader falls silent. Another leads when the server's timer has ended the silent
// session, and the leader has stopped before, by its own clock. Meanwhile it is alive, and not
// ready.
func TestLostNode(t *testing.T) {
	lease := tier.Pick(3*time.Second, 3*time.Second, 30*time.Second)
	eachEngine(t, func(t *testing.T, s *servers.Server) {
		var nodes []*wire.Proxy
		k := newKubelet(t, lease, func(int) string {
			node, dsn := between(t, s)
			nodes = append(nodes, node)
			return dsn
		})
		k.start()
		was := k.leading()
		k.start()
		silent := time.Now()
		node := nodes[was.pod.number]
		node.Behave(wire.Network{Drop: true}) // the pod's new connections
		require.NoError(t, node.Silence())    // those it has: not even a close is heard
		eventually.True(t, "the pod is alive", func() bool { return k.probe(was.pod, "/livez") == http.StatusOK })
		require.False(t, k.ready(was.pod))
		now := k.next(was)
		gap := k.gaps()[0]
		took := now.from.Sub(silent)
		t.Logf("lease %v: the leader stopped after %v, another led after %v; nobody led for %v", lease,
			was.end.Sub(silent).Round(time.Millisecond), took.Round(time.Millisecond), gap.Round(time.Millisecond))
		require.Less(t, took, lease+10*time.Second)
	})
}

// between puts a node's network between a pod and the server.
func between(t *testing.T, s *servers.Server) (node *wire.Proxy, dsn string) {
	t.Helper()
	node, err := wire.Listen(s.Address())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	return node, strings.Replace(s.DSN, s.Address(), node.Addr(), 1)
}
