//go:build unix

package main_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/eventually"
)

func TestPermits(t *testing.T) { each(t, permits) }

// At most N commands run at once, each with a permit of its own. The lock of the same key is
// another.
func permits(t *testing.T, e *engine) {
	e.oneAtATime(t)
	f := installed(t, e)
	const told = `echo "permit $TXLOCK_PERMIT"; read line`
	first := f.start(t, "run", "--permits", "2", "k", "--", "sh", "-c", told)
	require.Equal(t, "permit 0", first.line(t))
	second := f.start(t, "run", "--permits", "2", "k", "--", "sh", "-c", told)
	require.Equal(t, "permit 1", second.line(t))
	require.Equal(t, 75, f.run(t, "run", "--try", "--permits", "2", "k", "--", "echo", "never").code)
	require.Equal(t, result{stdout: "mine"}, f.run(t, "run", "--try", "k", "--", "echo", "mine"))

	third := f.start(t, "run", "-v", "--permits", "2", "k", "--", "sh", "-c", told)
	eventually.True(t, "the permits and who waits", func() bool {
		shown := f.run(t, "status", "k")
		require.Zero(t, shown.code, shown.stderr)
		for _, text := range []string{"permits of k", "permit 0", "permit 1", "waits"} {
			if !strings.Contains(shown.stdout, text) {
				return false
			}
		}
		return strings.Contains(third.stderr.String(), "permits held: 2")
	})
	require.Equal(t, 3, f.run(t, "break", "--yes", "k").code, "nobody holds the lock k")
	second.send(t, "")
	require.Zero(t, second.wait(t))
	require.Equal(t, "permit 1", third.line(t))
	third.send(t, "")
	first.send(t, "")
	require.Zero(t, third.wait(t))
	require.Zero(t, first.wait(t))
	for _, bad := range [][]string{{"--permits", "0", "k"}, {"--permits", "1001", "k"}, {"--permits", "2", "k", "l"}} {
		require.Equal(t, 64, f.run(t, append(append([]string{"run"}, bad...), "--", "echo", "never")...).code)
	}
}
