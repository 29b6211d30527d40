//go:build unix

package main_test

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/eventually"
)

// A release that the server does not confirm differs from a loss. A signal ends the wait for it.
func TestReleaseUnconfirmed(t *testing.T) {
	t.Parallel()
	f := installed(t, engines[0])
	for _, last := range []struct{ code, want int }{{0, 76}, {3, 3}, {0, 128 + int(syscall.SIGINT)}} {
		through := *f
		proxy := through.proxied(t, 10)
		p := through.play(t, "patient", strconv.Itoa(last.want))
		p.send(t, "pid")
		pid := p.number(t)
		proxy.Behave(silent)
		p.send(t, strconv.Itoa(last.code))
		gone(t, pid)
		if last.want > 128 {
			eventually.True(t, "the end by a signal", func() bool {
				return errors.Is(p.Process.Signal(syscall.SIGINT), os.ErrProcessDone)
			})
		}
		require.Equal(t, last.want, p.wait(t))
		if last.want < 128 {
			require.Regexp(t, `^txlock: the release of \d+ was not confirmed, and it may have been lost meanwhile: `+
				`.*; the command ended with code \d\n$`, p.stderr.String())
		}
	}
}

func TestReleaseUnanswered(t *testing.T) { each(t, releaseUnanswered) }

// The server falls silent, and the command ends before the lease does. The lock was held until
// then, so the exit code is the command's.
func releaseUnanswered(t *testing.T, e *engine) {
	f := installed(t, e)
	proxy := f.proxied(t, 10)
	p := f.play(t, "patient", "k", "--lease", "15s") // it sends a heartbeat within 2.5 s
	proxy.Behave(silent)
	since, before := time.Now(), proxy.Bursts()
	// After 3 s without a burst, the heartbeat was sent before the silence.
	eventually.True(t, "a heartbeat", func() bool {
		return proxy.Bursts() > before || time.Since(since) > 3*time.Second
	})
	p.send(t, "5")
	require.Equal(t, 5, p.wait(t), p.stderr)
	require.Regexp(t, `^txlock: the release of k was not confirmed, and it may have been lost meanwhile: .*; `+
		`the command ended with code 5\n$`, p.stderr.String())
}
