//go:build unix

package main_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/eventually"
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

func TestOnce(t *testing.T) { each(t, onces) }

// Without --after the key is marked before the command, which then runs at most once. With it the
// key is marked when the command has succeeded.
func onces(t *testing.T, e *engine) {
	f := installed(t, e)
	failing := []string{"--", "sh", "-c", "echo ran $TXLOCK_KEY; exit 3"}
	passing := []string{"--", "echo", "ran"}
	for _, c := range []struct {
		typed []string
		code  int
		runs  bool
	}{
		{append([]string{"once", "-v", "k"}, failing...), 3, true},
		{append([]string{"once", "-v", "k"}, passing...), 0, false},
		{append([]string{"once", "-v", "--after", "k"}, passing...), 0, false},
		{append([]string{"once", "-v", "--per", "87600h", "k"}, passing...), 0, true},
		{append([]string{"once", "-v", "--per", "87600h", "k"}, passing...), 0, false},
		{append([]string{"once", "-v", "--after", "late"}, failing...), 3, true},
		{append([]string{"once", "-v", "--after", "late"}, passing...), 0, true},
		{append([]string{"once", "-v", "--after", "late"}, passing...), 0, false},
		{append([]string{"once", "-v", "late"}, passing...), 0, false},
		{append([]string{"once", "-v", "--after", "--per", "87600h", "late"}, failing...), 3, true},
		{append([]string{"once", "-v", "--after", "--per", "87600h", "late"}, passing...), 0, true},
		{append([]string{"once", "-v", "--after", "--per", "87600h", "late"}, passing...), 0, false},
	} {
		r := f.run(t, c.typed...)
		require.Equal(t, c.code, r.code, "%q: %s", c.typed, r.stderr)
		if c.runs {
			require.Contains(t, r.stdout, "ran", c.typed)
			require.Empty(t, r.stderr, c.typed)
			continue
		}
		require.Empty(t, r.stdout, c.typed)
		require.Regexp(t, `^txlock: \w+ was done before: \d{4}-\d\d-\d\dT[0-9:]+Z\n$`, r.stderr, c.typed)
	}
	for _, c := range []struct {
		typed  string
		code   int
		stdout string
	}{
		{"once --done k", 0, `^\d{4}-\d\d-\d\dT[0-9:]+Z$`},
		{"once k -- echo ran", 0, "^$"}, // cron mails what is said
		{"once --forget k", 0, "^$"},
		{"once --done k", 3, "^$"},
		{"once --done --per 87600h k", 0, "Z"},
		{"once k -- echo ran", 0, "^ran$"},
		{"sweep --older 1h", 0, "^0 deleted$"},
		{"sweep --older 1us", 0, "^[1-9] deleted$"},
		{"once k -- echo ran", 0, "^ran$"},
	} {
		r := f.run(t, strings.Fields(c.typed)...)
		require.Equal(t, c.code, r.code, "%s: %s", c.typed, r.stderr)
		require.Regexp(t, c.stdout, r.stdout, c.typed)
		require.Empty(t, r.stderr, c.typed)
	}
	// A command that ends in a later window marks none.
	r := f.run(t, "once", "--after", "--per", "1s", "slow", "--", "sleep", "1.1")
	require.Zero(t, r.code)
	require.Equal(t, "txlock: slow is not marked as done: it has ended in a later window than it began in\n", r.stderr)
}

func TestOnceWaits(t *testing.T) { each(t, onceWaits) }

// With --after, others wait while the command runs.
func onceWaits(t *testing.T, e *engine) {
	e.oneAtATime(t)
	f := installed(t, e)
	for _, end := range []string{"5", "0"} {
		first := f.start(t, "once", "--after", "k", "--", "sh", "-c", "echo begun; read end; exit $end")
		require.Equal(t, "begun", first.line(t))
		require.Equal(t, 75, f.run(t, "run", "--try", "k", "--", "true").code)
		require.Equal(t, 75, f.run(t, "once", "--after", "--try", "k", "--", "echo", "never").code)
		second := f.start(t, "once", "-v", "--after", "k", "--", "sh", "-c", "echo second; exit 4")
		f.waiters(t, 1)
		first.send(t, end)
		code := first.wait(t)
		if end == "5" {
			require.Equal(t, 5, code)
			require.Equal(t, "second", second.line(t))
			require.Equal(t, 4, second.wait(t))
			continue
		}
		require.Zero(t, code)
		require.Zero(t, second.wait(t))
		require.Contains(t, second.stderr.String(), "k was done before: ")
	}
}

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
