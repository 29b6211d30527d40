//go:build unix

package kubernetes_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"

	"github.com/txlock/txlock/internal/test/eventually"
)

// kubelet runs the pods of the Deployment as processes, and does to them what a kubelet does.
type kubelet struct {
	t          *testing.T
	deployment apps.Deployment
	dsn        func(pod int) string
	lease      time.Duration
	started    int

	mu    sync.Mutex
	terms []*term // in the order in which they began
}

// term is the time for which a pod led, by the clock of this machine.
type term struct {
	pod       *pod
	number    int64
	from, end time.Time // end is zero while it leads
}

// pod is one process of the Deployment's program.
type pod struct {
	name   string
	number int
	probes string // the address that answers them
	*exec.Cmd
	ended chan struct{}
}

func newKubelet(t *testing.T, lease time.Duration, dsn func(pod int) string) *kubelet {
	return &kubelet{t: t, deployment: read(t).deployment, lease: lease, dsn: dsn}
}

// start starts a pod, and returns when its readiness probe succeeds.
func (k *kubelet) start() *pod {
	k.t.Helper()
	container := k.deployment.Spec.Template.Spec.Containers[0]
	p := &pod{name: fmt.Sprintf("scheduler-%d", k.started), number: k.started, ended: make(chan struct{})}
	k.started++
	p.Cmd = exec.Command(leader)
	p.Env = []string{"LISTEN=127.0.0.1:0", "LEASE=" + k.lease.String()}
	for _, variable := range container.Env {
		value := p.name
		if from := variable.ValueFrom; from.SecretKeyRef != nil {
			value = k.dsn(p.number)
		} else {
			require.Equal(k.t, "metadata.name", from.FieldRef.FieldPath)
		}
		p.Env = append(p.Env, variable.Name+"="+value)
	}
	p.Stderr = os.Stderr
	output, err := p.StdoutPipe()
	require.NoError(k.t, err)
	require.NoError(k.t, p.Start())
	listening := make(chan string, 1)
	go func() {
		defer close(p.ended)
		k.follow(p, output, listening)
		_ = p.Wait()
	}()
	k.t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.ended
	})
	select {
	case p.probes = <-listening:
	case <-p.ended:
		require.Fail(k.t, "a pod ended before it was ready")
	}
	eventually.True(k.t, p.name+" is ready", func() bool { return k.ready(p) })
	return p
}

// follow notes when the pod leads, until it ends.
func (k *kubelet) follow(p *pod, output io.Reader, listening chan<- string) {
	for lines := bufio.NewScanner(output); lines.Scan(); {
		var number, at int64
		line := lines.Text()
		if address, ok := strings.CutPrefix(line, "probes "); ok {
			listening <- address
		} else if _, err := fmt.Sscanf(line, "leads %d %d", &number, &at); err == nil {
			k.mu.Lock()
			k.terms = append(k.terms, &term{pod: p, number: number, from: time.Unix(0, at)})
			k.mu.Unlock()
		} else if _, err := fmt.Sscanf(line, "led %d %d", &number, &at); err == nil {
			k.end(p, number, time.Unix(0, at))
		}
	}
}

func (k *kubelet) end(p *pod, number int64, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.terms {
		if t.pod == p && t.end.IsZero() && (number == 0 || t.number == number) {
			t.end = at
		}
	}
}

// leading waits for a pod that leads, and returns its term.
func (k *kubelet) leading() (found *term) {
	k.t.Helper()
	eventually.True(k.t, "a pod leads", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		if n := len(k.terms); n > 0 && k.terms[n-1].end.IsZero() {
			found = k.terms[n-1]
		}
		return found != nil
	})
	return found
}

// next waits for the term after that one.
func (k *kubelet) next(after *term) (found *term) {
	k.t.Helper()
	eventually.True(k.t, "another leads", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		if i := slices.Index(k.terms, after) + 1; i < len(k.terms) {
			found = k.terms[i]
		}
		return found != nil
	})
	return found
}

// ready asks the pod's readiness probe.
func (k *kubelet) ready(p *pod) bool {
	return k.probe(p, k.deployment.Spec.Template.Spec.Containers[0].ReadinessProbe.HTTPGet.Path) == http.StatusOK
}

// probe returns the status, or 0 without an answer in time.
func (k *kubelet) probe(p *pod, path string) int {
	seconds := k.deployment.Spec.Template.Spec.Containers[0].ReadinessProbe.TimeoutSeconds
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.probes+path, nil)
	require.NoError(k.t, err)
	answer, err := http.DefaultClient.Do(request)
	if errors.Is(err, context.DeadlineExceeded) {
		return 0
	}
	require.NoError(k.t, err)
	require.NoError(k.t, answer.Body.Close())
	return answer.StatusCode
}

// terminate ends a pod as a rollout, an eviction and a drain do: by SIGTERM. No SIGKILL has to
// follow, and it exits with 0.
func (k *kubelet) terminate(p *pod) {
	k.t.Helper()
	grace := time.Duration(*k.deployment.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	require.NoError(k.t, p.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.ended:
		require.Zero(k.t, p.ProcessState.ExitCode(), p.name)
	case <-time.After(grace):
		require.Fail(k.t, "the grace period ended before "+p.name)
	}
}

// rollOut puts a new pod in the place of each, as maxSurge: 1 and maxUnavailable: 0 say.
func (k *kubelet) rollOut(pods []*pod) {
	k.t.Helper()
	update := k.deployment.Spec.Strategy.RollingUpdate
	require.Equal(k.t, 1, update.MaxSurge.IntValue())
	require.Equal(k.t, 0, update.MaxUnavailable.IntValue())
	for i, old := range pods {
		pods[i] = k.start()
		k.terminate(old)
	}
}

// gaps requires that no two have led at one time, and that terms increase, and returns for how long
// nobody led, in order of length.
func (k *kubelet) gaps() (gaps []time.Duration) {
	k.t.Helper()
	// What a pod has written is read by a goroutine of its own: the later term may be noted first.
	eventually.True(k.t, "all terms but one have ended", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		led := 0
		for _, t := range k.terms {
			if t.end.IsZero() {
				led++
			}
		}
		return led <= 1
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	slices.SortFunc(k.terms, func(a, b *term) int { return a.from.Compare(b.from) })
	for i, later := range k.terms[1:] {
		earlier := k.terms[i]
		require.Greater(k.t, later.number, earlier.number)
		require.False(k.t, earlier.end.IsZero(), "%s still led term %d when %s led", earlier.pod.name, earlier.number,
			later.pod.name)
		gap := later.from.Sub(earlier.end)
		require.Positive(k.t, gap, "%s led until %v, and %s from %v", earlier.pod.name, earlier.end, later.pod.name,
			later.from)
		gaps = append(gaps, gap)
	}
	slices.Sort(gaps)
	return gaps
}
