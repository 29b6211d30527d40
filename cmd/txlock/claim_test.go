//go:build unix

package main_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClaim(t *testing.T) { each(t, claims) }

// A claim goes from one command to the next by its text.
func claims(t *testing.T, e *engine) {
	f := installed(t, e)
	ok := func(typed ...string) string {
		r := f.run(t, typed...)
		require.Zero(t, r.code, "%q: %s", typed, r.stderr)
		return strings.TrimSpace(r.stdout)
	}
	fails := func(code int, says string, typed ...string) {
		r := f.run(t, typed...)
		require.Equal(t, code, r.code, "%q: %s", typed, r.stderr)
		require.Contains(t, r.stderr, says, "%q", typed)
	}
	text := ok("claim", "seat:1", "--as", "cart 77", "--for", "1h")
	require.NotContains(t, text, " ")
	fails(75, `seat:1 was not acquired: "cart 77" has it until `,
		"claim", "seat:1", "--as", "b", "--for", "1h", "--try")
	fails(0, "", "claim", "seat:1", "--as", "b", "--for", "1h", "--wait", "10ms", "-E", "0")
	again := ok("claim", "--extend", text, "--for", "2h")
	require.NotEqual(t, text, again)
	require.Regexp(t, `claim seat:1 +claimed .*cart 77.*until `, ok("status"))
	require.Regexp(t, `"by": "cart 77",\s+"until": "20`, ok("status", "--json"))
	ok("release", again)
	fails(76, "the claim seat:1 is lost: ", "claim", "--extend", text, "--for", "1h")

	text = ok("claim", "seat:1", "--as", "b", "--for", "1h")
	require.Contains(t, ok("break", "--yes", "seat:1"), "The claim of b has ended.")
	fails(76, "the claim seat:1 is lost: ", "release", text)
	fails(3, "nobody holds seat:1", "break", "--yes", "seat:1")

	for _, wrong := range [][]string{
		{"claim", "seat:1", "--for", "1h"},
		{"claim", "seat:1", "--as", "b"},
		{"claim", "seat:1", "--as", "b", "--for", "1h", "--try", "--wait", "1s"},
		{"claim", "--extend", text, "--as", "b", "--for", "1h"},
		{"claim", "--extend", "no text", "--for", "1h"},
		{"release", "no text"},
		{"run", "--claim", "seat:1", "--", "true"},
		{"run", "--for", "1h", "seat:1", "--", "true"},
		{"run", "--claim", "--for", "1h", "a", "b", "--", "true"},
		{"run", "--claim", "--for", "20s", "a", "--", "true"}, // --grace is 10s
		{"claim", "seat:1", "--as", "b", "--for", "1h", "-E", "256"},
	} {
		fails(64, "", wrong...)
	}
}

func TestRunClaim(t *testing.T) { each(t, runClaims) }

// A command runs while it has a claim, which is extended, and is ended when that is taken away.
func runClaims(t *testing.T, e *engine) {
	f := installed(t, e)
	first := f.start(t, "run", "--claim", "--grace", "1s", "--for", "9s", "--as", "camera", "k", "--", "sh", "-c",
		"echo $TXLOCK_KEY $TXLOCK_TOKEN; read end; exit $end")
	begun := strings.Fields(first.line(t))
	require.Len(t, begun, 2)
	require.Equal(t, "k", begun[0])
	// It has been extended at least once by the end of this wait.
	r := f.run(t, "run", "--claim", "--grace", "1s", "--for", "9s", "--wait", "10s", "k", "--", "true")
	require.Equal(t, 75, r.code, r.stderr)
	require.Contains(t, r.stderr, "camera")
	first.send(t, "5")
	require.Equal(t, 5, first.wait(t))
	require.Zero(t, f.run(t, "run", "--claim", "--grace", "1s", "--for", "9s", "--try", "k", "--", "true").code)

	first = f.start(t, "run", "--claim", "--grace", "1s", "--for", "9s", "k", "--", "sh", "-c",
		"echo begun; exec sleep 600")
	require.Equal(t, "begun", first.line(t))
	require.Zero(t, f.run(t, "break", "--yes", "k").code)
	require.Equal(t, 76, first.wait(t))
	require.Contains(t, first.stderr.String(), "k is lost: ")
}

func TestRunClaimInSilence(t *testing.T) { each(t, runClaimInSilence) }

// When the server has fallen silent, the command ends before the claim does.
func runClaimInSilence(t *testing.T, e *engine) {
	f := installed(t, e)
	direct := *f
	proxy := f.proxied(t, 60)
	r := f.start(t, "run", "--claim", "--grace", "10s", "--for", "30s", "k", "--", "sh", "-c",
		"trap 'echo told; exit 5' TERM; echo begun; while :; do sleep 0.1; done")
	require.Equal(t, "begun", r.line(t))
	proxy.Behave(silent)
	require.Equal(t, "told", r.line(t))
	fresh := direct.run(t, "claim", "k", "--as", "another", "--for", "1h", "--try")
	require.Equal(t, 75, fresh.code, "it has the claim still: %s", fresh.stderr)
	require.Equal(t, 76, r.wait(t))
	require.Contains(t, r.stderr.String(), "could not be extended in time")
}
